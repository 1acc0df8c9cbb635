"""What a caller asks of MetaVoice, checked and completed before any weight is touched."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import numpy as np

from tts_core.audio.files import resample
from tts_core.audio.silence import trim
from tts_core.errors import UsageError
from tts_core.metavoice.codes import flattened, most_frames
from tts_core.metavoice.config import END_OF_AUDIO, FIRST_STAGE_BOOKS, FirstStageConfig, SecondStageConfig
from tts_core.metavoice.sampling import FirstStageSampling
from tts_core.metavoice.speaker_slices import SAMPLE_RATE as SPEAKER_RATE
from tts_core.metavoice.speaker_slices import TRIM_DB
from tts_core.metavoice.text import Tokenizers, normalise
from tts_core.noise import HostNoise, Noise, NormalNoise, check_seed, piece_seed
from tts_core.prompt import Prompt
from tts_core.text.checks import check_words
from tts_core.text.sentences import CHARACTERS_PER_SECOND, split
from tts_core.text.spoken import spoken

Decoder = Literal["vocos", "mbd"]
CfgScale = float | tuple[float, float]  # speaker, or speaker and text

DECODERS = ("vocos", "mbd")
STAGES = ("speaker", "first stage", "second stage", "decoder")
BANDWIDTH_ID = 2  # of the vocoder's norms: 6 kbps, which 8 codebooks are
PIECE_CHARACTERS = 220  # what upstream's own app reads at most
FRAME_RATE = 75  # a second
SLOWEST = 5  # characters a second; who speaks slower has gone astray
PAUSES = 2 * FRAME_RATE  # frames that even the shortest text may take
LEAST_SECONDS, ADVISED_SECONDS = 2.0, 30.0  # of a reference
_LOG = logging.getLogger("tts_core")


class SpeechNoise(Noise, NormalNoise, Protocol):
    """Numbers for one piece of a text: uniform ones for both stages, normal ones for multi-band diffusion."""


Voice = Prompt | np.ndarray | Sequence[Prompt]  # a bare (E,) array is a speaker vector


@dataclass(frozen=True)
class Piece:
    """A piece of a text, ready for both stages."""

    first: np.ndarray  # (S,) int32 ids, end of text included
    second: np.ndarray  # the same words in the second stage's ids
    frames: int  # at most
    room: int  # positions that the first stage has for audio
    noise: SpeechNoise

    def limit(self, frames: int) -> int:
        """Ids that the first stage may make for so many frames: their codes, and the end of audio."""
        return min(FIRST_STAGE_BOOKS * frames + 1, self.room)


@dataclass(frozen=True)
class Said:
    """What the first stage made of a piece. codes: (2, F) int32.  ids: how many.  ended: by itself."""

    codes: np.ndarray
    ids: int
    ended: bool


@dataclass(frozen=True)
class Speech:
    """One text in pieces. max_frames: of all pieces together.  seed: None where the caller gave the noise."""

    pieces: list[Piece]
    max_frames: int | None
    seed: int | None

    def frames(self, place: int, made: int = 0) -> int:
        """The most frames of a piece, `made` being those in front of it."""
        most = self.pieces[place].frames
        return most if self.max_frames is None else min(most, self.max_frames - made)

    def said(self, place: int, sequence: np.ndarray, made: int = 0) -> Said:
        """What a first-stage sequence, (N,) ids of text and audio, says of a piece, as far as is wanted.

        made: frames in front of it. Where it was cut and the caller had set no limit, that is warned about.
        """
        piece, frames = self.pieces[place], self.frames(place, made)
        sequence = sequence[: len(piece.first) + piece.limit(frames)]
        codes = flattened(sequence)[1][:, :frames]
        ended = int(sequence[-1]) == END_OF_AUDIO
        if not ended and self.max_frames is None:
            _LOG.warning(
                "text: piece %d of %d did not end within %.1f s and was cut there; another seed or shorter "
                "pieces may help",
                *(place + 1, len(self.pieces), codes.shape[1] / FRAME_RATE),
            )
        return Said(codes, len(sequence) - len(piece.first), ended)

    def all_said(self, sequences: Sequence[np.ndarray]) -> list[Said]:
        """What the sequences of all pieces say, up to the one that reaches max_frames."""
        made, heard = 0, list[Said]()
        for place, sequence in enumerate(sequences):
            heard.append(self.said(place, sequence, made))
            made += heard[-1].codes.shape[1]
            if made == self.max_frames:
                break
        return heard


def request_speech(
    text: str,
    tokenizers: Tokenizers,
    first: FirstStageConfig,
    second: SecondStageConfig,
    *,
    as_written: bool = False,
    piece_characters: int | None = PIECE_CHARACTERS,
    max_frames: int | None = None,
    seed: int | None = None,
    noise: SpeechNoise | Sequence[SpeechNoise] | None = None,
    where: str = "text",
) -> Speech:
    """One text, cut into pieces that both windows have room for; every value is checked.

    as_written: leave numbers and abbreviations as they are. piece_characters: the most of a piece, where the
    windows hold so much speech; None does not cut. seed: None draws one. noise: one for all pieces, or one a
    piece. where: the text's name in messages. Raises UsageError naming the argument.
    """
    check_words(where, text)
    if max_frames is not None and (not isinstance(max_frames, int | np.integer) or max_frames < 1):
        raise UsageError(f"max_frames: {max_frames!r} is not a whole number of 1 and more")
    texts = cut(text if as_written else spoken(text), piece_characters, second.max_position_embeddings)
    seed = check_seed(secrets.randbits(32) if seed is None else seed)
    sources = _sources(noise, seed, len(texts))
    pieces = []
    for place, (words, source) in enumerate(zip(texts, sources, strict=True), start=1):
        ids, other = tokenizers.first_stage.encode(words), tokenizers.second_stage.encode(words)
        windows = first.max_position_embeddings, second.max_position_embeddings
        room = most_frames(max(len(ids), len(other)), *windows)
        if room < 1:
            which = where if len(texts) == 1 else f"{where}, piece {place}"
            raise UsageError(f"{which}: {len(ids)} ids leave no room for speech; give a shorter text")
        asked = PAUSES + FRAME_RATE * len(words) // SLOWEST if max_frames is None else int(max_frames)
        pieces.append(Piece(ids, other, min(room, asked), first.max_position_embeddings - len(ids), source))
    return Speech(
        pieces, None if max_frames is None else int(max_frames), None if noise is not None else seed
    )


def request_texts(
    texts: Sequence[str],
    tokenizers: Tokenizers,
    first: FirstStageConfig,
    second: SecondStageConfig,
    *,
    as_written: bool,
    piece_characters: int | None,
    max_frames: int | Sequence[int | None] | None,
    seed: int | Sequence[int] | None,
    noise: SpeechNoise | Sequence[SpeechNoise] | None,
) -> list[Speech]:
    """Several texts; max_frames, seed and noise: one for all, or one per text. Other arguments and errors as
    of `request_speech`.
    """
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    if not texts:
        raise UsageError("texts: the list is empty")
    seed = secrets.randbits(32) if seed is None else seed
    named = {"max_frames": max_frames, "seed": seed, "noise": noise}
    given = [each(name, value, len(texts)) for name, value in named.items()]
    return [
        request_speech(
            text,
            tokenizers,
            first,
            second,
            as_written=as_written,
            piece_characters=piece_characters,
            max_frames=frames,
            seed=own,
            noise=source,
            where=f"text {place}",
        )
        for place, (text, frames, own, source) in enumerate(zip(texts, *given, strict=True), start=1)
    ]


def cut(text: str, most: int | None, window: int) -> list[str]:
    """The pieces of a text, normalised; none longer than `most` characters, nor than what is usually said in
    the second stage's window of so many positions, text included. most: None does not cut.
    """
    if most is None:
        return [normalise(text)]
    if not isinstance(most, int | np.integer) or most < 1:
        raise UsageError(f"piece_characters: {most!r} is not a whole number of 1 and more")
    normalise(text)  # what it refuses is told of the whole text
    most = max(1, min(int(most), usual_characters(window)))
    return [piece for part in split(text, most) for piece in split(normalise(part), most)]


def usual_characters(window: int) -> int:
    """How long a text may be whose ids, at most one a character, and usual speech fill a window."""
    return (window - 2) * CHARACTERS_PER_SECOND // (FRAME_RATE + CHARACTERS_PER_SECOND)


def choose_sampling(
    cfg_scale: CfgScale | None, temperature: float | None, top_k: int | None, top_p: float | None
) -> FirstStageSampling:
    """How the first stage draws; None takes the model's value. top_k: 0 keeps all.

    cfg_scale: guidance on the speaker, or a pair, on speaker and text, which takes the rule of upstream's
    slow inference. Raises UsageError for a value out of its range.
    """
    heat = FirstStageSampling.temperature if temperature is None else temperature
    kept = None if top_k == 0 else top_k
    if cfg_scale is None or isinstance(cfg_scale, int | float | np.number):
        scale = FirstStageSampling.cfg_scale if cfg_scale is None else float(cfg_scale)
        nucleus = FirstStageSampling.top_p if top_p is None else top_p
        return FirstStageSampling(scale, temperature=heat, top_k=kept, top_p=nucleus)
    if len(cfg_scale) != 2:
        raise UsageError(f"cfg_scale: {cfg_scale!r} is neither a number nor a pair of speaker and text")
    speaker, words = map(float, cfg_scale)
    nucleus = FirstStageSampling.top_p if top_p is None and kept is None else top_p
    nucleus = None if nucleus == 1 else nucleus
    return FirstStageSampling(speaker, words, heat, nucleus, kept, rule="slow")


def check_decoder(decoder: str, there: Sequence[str]) -> None:
    """Raise UsageError unless the decoder is one, and the model has it; tell the licence of MBD's weights."""
    if decoder not in DECODERS:
        raise UsageError(f"decoder: {decoder!r} is none; use {' or '.join(DECODERS)}")
    if decoder not in there:
        raise UsageError(
            "decoder: multi-band diffusion is not in this model; add it with convert-weights --include-mbd, "
            "or use vocos"
        )
    if decoder == "mbd":
        tell_licence()


@cache
def tell_licence() -> None:
    """Say once in a process what the diffusion's weights may be used for."""
    _LOG.warning("decoder mbd: its weights are CC-BY-NC 4.0, not for commercial use; vocos has no such limit")


def as_vector(voice: Voice, size: int) -> np.ndarray | None:
    """The speaker vector that a voice already is, (E,) float32, or None for recordings."""
    if not isinstance(voice, np.ndarray):
        return None
    if voice.shape != (size,) or voice.dtype.kind != "f" or not np.isfinite(voice).all():
        raise UsageError(
            f"prompt: a bare array is a speaker vector of {size} numbers, found shape {voice.shape}, "
            f"{voice.dtype}; give recordings as Prompt.of(audio=...)"
        )
    return voice.astype(np.float32)


def utterances(voice: Voice | None, sample_rate: int) -> list[np.ndarray]:
    """Recordings as the speaker encoder reads them: (L,) float32 samples each at 16 kHz, ends trimmed.

    voice: one Prompt or several with audio at `sample_rate`. Raises UsageError for none, for what is no
    recording, and for less than two seconds in all; less than 30 are warned about.
    """
    if voice is None:
        raise UsageError(
            "prompt: MetaVoice speaks with the voice of a reference; give Prompt.of(audio=...), "
            f"{ADVISED_SECONDS:g} s of speech or more"
        )
    given = [voice] if isinstance(voice, Prompt) else list(voice)
    if not given:
        raise UsageError("prompt: the list of references is empty")
    given = [Prompt((one,)) for prompt in given for one in prompt.references]
    waves = [_samples(prompt) for prompt in given]
    check_seconds(sum(map(len, waves)) / sample_rate)
    heard = [trim(resample(wave, sample_rate, SPEAKER_RATE, quality="HQ"), TRIM_DB) for wave in waves]
    return [np.ascontiguousarray(wave, np.float32) for wave in heard]


def check_seconds(seconds: float) -> None:
    """Refuse a reference that is too short for a voice, warn of one that is short."""
    if seconds < LEAST_SECONDS:
        raise too_short("prompt", seconds)
    if seconds < ADVISED_SECONDS:
        _LOG.warning(
            "reference: %.1f s; the voice is caught better from %g s of clear speech",
            seconds,
            ADVISED_SECONDS,
        )


def too_short(where: str, seconds: float) -> UsageError:
    """The error for a reference that no voice can be made of."""
    return UsageError(
        f"{where}: {seconds:.1f} s are too little for a voice; give {ADVISED_SECONDS:g} s of clear speech, "
        f"{LEAST_SECONDS:g} s at the very least"
    )


def _samples(prompt: Prompt) -> np.ndarray:
    if not isinstance(prompt, Prompt) or prompt.one.audio is None:
        raise UsageError("prompt: MetaVoice reads a voice from sound; give Prompt.of(audio=...)")
    samples = np.asarray(prompt.one.audio)
    if samples.dtype.kind != "f":  # 16-bit samples read as they are would be 32,768 times too loud
        raise UsageError("prompt: audio must be floating-point samples in [-1, 1]")
    if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
        raise UsageError("prompt: audio must be a non-empty 1-D array of finite samples")
    if not samples.any():
        raise UsageError("prompt: the reference is silent; give some seconds of speech")
    return samples.astype(np.float32)


def each(name: str, value: object, texts: int) -> list:
    """One value a text. Raises UsageError where there are more or fewer."""
    values = list(value) if isinstance(value, Sequence | np.ndarray) else [value] * texts
    if len(values) != texts:
        raise UsageError(f"{name}: {len(values)} values for {texts} texts; give one, or one per text")
    return values


def _sources(noise: SpeechNoise | Sequence[SpeechNoise] | None, seed: int, count: int) -> list[SpeechNoise]:
    if noise is None:
        return [HostNoise(piece_seed(seed, place)) for place in range(count)]
    if not isinstance(noise, Sequence):
        return [noise] * count
    if len(noise) != count:
        raise UsageError(f"noise: {len(noise)} sources for {count} pieces; give one, or one per piece")
    return list(noise)
