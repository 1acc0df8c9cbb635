"""MetaVoice's requests: text, options and voice in, a checked request out. No network runs here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import cast

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.audio.files import resample
from tts_core.audio.silence import trim
from tts_core.audio.speaker_slices import SAMPLE_RATE as SPEAKER_RATE
from tts_core.audio.speaker_slices import TRIM_DB
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.metavoice.config import END_OF_AUDIO, FIRST_STAGE_BOOKS, FirstStageConfig, SecondStageConfig
from tts_core.metavoice.footprint import FRAME_RATE, MetaVoiceJob, usual_characters
from tts_core.metavoice.inputs import FirstStageSampling, SpeechNoise, flattened, most_frames
from tts_core.metavoice.options import DECODERS, Decoder, MetaVoiceOptions
from tts_core.metavoice.text import Tokenizers, check_characters, is_readable, normalise, read_tokenizers
from tts_core.models import Documents
from tts_core.nn.noise import per_text, piece_seed
from tts_core.pipeline import PromptLike
from tts_core.prompt import Prompt
from tts_core.speaking.given import frames_of, given_texts, read_once, seed_of
from tts_core.speaking.request import RequestFacts, WholeRequest
from tts_core.text import breaks
from tts_core.text.alphabet import accent_notes, known_text
from tts_core.text.breaks import Paused
from tts_core.text.checks import check_one_speaker, check_words
from tts_core.text.duration import expected_seconds, longest_frames, warn_of_piece
from tts_core.text.pace import CHARACTERS_PER_SECOND
from tts_core.text.sentences import split
from tts_core.text.spoken import SIGNS, spoken

STAGES = ("speaker", "first stage", "second stage", "decoder")
BANDWIDTH_ID = 2  # of the vocoder's norms: 6 kbps, the rate of 8 codebooks
LEAST_SECONDS, ADVISED_SECONDS = 2.0, 30.0  # of a reference
_LOG = logging.getLogger("tts_core")


@dataclass(frozen=True, eq=False)
class MetaVoiceVoice:
    """A checked voice: a speaker vector (E,) float32, or recordings not yet encoded, (L,) float32 at 16 kHz
    each, their ends trimmed.
    """

    vector: np.ndarray | None = None
    utterances: tuple[np.ndarray, ...] = ()

    def encoded(self, encode: Callable[[Sequence[np.ndarray]], np.ndarray]) -> np.ndarray:
        """Return the speaker vector. encode: recordings → (E,)."""
        return encode(self.utterances) if self.vector is None else self.vector


@dataclass(frozen=True)
class Said:
    """The first stage's result for a piece.

    codes: (2, F) int32.
    ids: their number.
    ended: by itself.
    """

    codes: np.ndarray
    ids: int
    ended: bool


@dataclass(frozen=True, eq=False)
class MetaVoicePiece:
    """A piece of a text, ready for both stages."""

    first: np.ndarray  # (S,) int32 ids, end of text included
    second: np.ndarray  # the same words in the second stage's ids
    frames: int  # limit
    room: int  # positions for audio in the first stage
    seconds: float  # estimated duration
    noise: SpeechNoise
    number: int = 1  # among the pieces of its text
    of: int = 1  # pieces of its text

    def most(self, left: int | None) -> int:
        """Limit its frames. left: that a limit of all pieces leaves it; None for no such limit."""
        return self.frames if left is None else min(self.frames, left)

    def limit(self, frames: int) -> int:
        """Limit the first stage's ids for this many frames: their codes, and the end of audio."""
        return min(FIRST_STAGE_BOOKS * frames + 1, self.room)

    def said(self, sequence: np.ndarray, left: int | None) -> Said:
        """Read a first-stage sequence, (N,) ids of text and audio, up to the limit. left: as in `most`.

        If it was cut off without a caller's limit, a warning is logged.
        """
        frames = self.most(left)
        sequence = sequence[: len(self.first) + self.limit(frames)]
        codes = flattened(sequence)[1][:, :frames]
        ended = int(sequence[-1]) == END_OF_AUDIO
        if not ended and left is None:
            warn_of_piece(self.number, self.of, codes.shape[1] / FRAME_RATE)
        return Said(codes, len(sequence) - len(self.first), ended)


@dataclass(frozen=True, eq=False)
class MetaVoiceRequest(WholeRequest):
    """One text as it will be spoken.

    max_frames: of all pieces together; None for no such limit.  seed: None if the caller gave the noise.
    """

    pieces: tuple[MetaVoicePiece, ...]
    voice: MetaVoiceVoice
    sampling: FirstStageSampling
    decoder: Decoder
    max_frames: int | None
    seed: int | None
    pacing: Pacing
    notes: tuple[str, ...] = ()  # remarks for the caller, a line each

    @property
    def seconds(self) -> float:
        """Estimated duration of the speech in seconds."""
        expected = sum(piece.seconds for piece in self.pieces)
        if self.max_frames is not None:
            expected = min(expected, self.max_frames / FRAME_RATE)
        return self.pacing.seconds(expected)

    def job(self) -> MetaVoiceJob:
        """Return the memory job of the longest piece."""
        return MetaVoiceJob(
            max(len(piece.first) for piece in self.pieces),
            max(piece.most(self.max_frames) for piece in self.pieces),
            1,
            self.sampling.rows,
            self.decoder == "mbd",
        )


@dataclass(frozen=True)
class MetaVoiceFacts(RequestFacts):
    """The facts about a MetaVoice that a request needs: configurations, decoders and tokenizers."""

    first: FirstStageConfig
    second: SecondStageConfig
    vocoder: VocosConfig
    decoders: tuple[Decoder, ...]
    tokenizers: Tokenizers

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> MetaVoiceFacts:
        return cls(
            config_of(configs, "metavoice", FirstStageConfig),
            config_of(configs, "metavoice_second_stage", SecondStageConfig),
            config_of(configs, "vocos", VocosConfig),
            DECODERS if "mbd" in configs else ("vocos",),
            read_tokenizers(documents),
        )

    def rehearsal(self) -> MetaVoiceRequest:
        """As of any model, of every network but the speaker encoder."""
        silence = np.zeros(self.first.speaker_embedding_size, np.float32)
        return self.request("Yes.", MetaVoiceOptions(seed=0, max_frames=16), silence)

    def request(self, text: str, options: MetaVoiceOptions, prompt: PromptLike = None) -> MetaVoiceRequest:
        paused = breaks.read("text", readable("text", text, options))
        made = self._request(paused, options, lambda: read_voice(self, prompt), "text")
        return replace(made, notes=accent_notes("text", text, lambda char: _known(char, options)))

    def requests(
        self,
        texts: Sequence[str],
        options: MetaVoiceOptions,
        prompts: PromptLike | Sequence[PromptLike],
        *,
        exactly: bool = False,
    ) -> list[MetaVoiceRequest]:
        """As of any model; texts that are read exactly are one piece each."""
        if exactly:
            options = replace(options, as_written=True, piece_seconds=None)
        voice, made = read_once(lambda prompt: read_voice(self, prompt)), []
        for own_text in given_texts(texts, options, prompts):
            where = f"text {own_text.number}"
            text = own_text.text if exactly else readable(where, own_text.text, options)
            paused = Paused.whole(text) if exactly else breaks.read(where, text)
            made.append(self._request(paused, own_text.options, partial(voice, own_text.prompt), where))
        return made

    def _request(
        self, paused: Paused, options: MetaVoiceOptions, voice: Callable[[], MetaVoiceVoice], where: str
    ) -> MetaVoiceRequest:
        """Build the request of a text. voice: called last, as recordings take longer to read.  where: the
        text's name in messages.
        """
        sampling, seed = choose_sampling(options), seed_of(options)
        check_decoder(options.decoder, self.decoders)
        most = frames_of(options, self.vocoder.sample_rate, self.vocoder.hop_length)
        pieces, pacing = self._pieces(options, paused, most, seed, where)
        own = None if options.noise is not None else seed
        return MetaVoiceRequest(pieces, voice(), sampling, options.decoder, most, own, pacing)

    def _pieces(
        self, options: MetaVoiceOptions, paused: Paused, max_frames: int | None, seed: int, where: str
    ) -> tuple[tuple[MetaVoicePiece, ...], Pacing]:
        """Clean, spell out, cut and tokenize a text."""
        check_words(where, paused.blanked)
        first, second = self.tokenizers.first_stage, self.tokenizers.second_stage
        windows = self.first.max_position_embeddings, self.second.max_position_embeddings
        most = None if options.piece_seconds is None else piece_characters(options.piece_seconds)
        texts, silences = paused.cut(
            lambda part: cut(part if options.as_written else spoken(part), most, windows[1])
        )
        seeds = [piece_seed(seed, index) for index in range(len(texts))]
        sources = cast(Sequence[SpeechNoise], per_text(options.noise, seeds, "piece"))
        made = []
        for index, (words, source) in enumerate(zip(texts, sources, strict=True), start=1):
            ids, other = first.encode(words), second.encode(words)
            room = most_frames(max(len(ids), len(other)), *windows)
            if room < 1:
                which = where if len(texts) == 1 else f"{where}, piece {index}"
                raise UsageError(f"{which}: {len(ids)} ids leave no room for speech; give a shorter text")
            expected = expected_seconds(words)
            limit = longest_frames(expected, FRAME_RATE) if max_frames is None else max_frames
            frames, positions = min(room, limit), windows[0] - len(ids)
            made.append(MetaVoicePiece(ids, other, frames, positions, expected, source, index, len(texts)))
        return tuple(made), Pacing(tuple(texts), silences, options.speed)


def readable(where: str, text: str, options: MetaVoiceOptions) -> str:
    """Return the text without characters that MetaVoice reads neither as they are nor as words.

    Raises UsageError for them unless skip_unknown is set, and for Dia's speaker tags.
    """
    check_one_speaker(text, "MetaVoice")
    why = "MetaVoice, which reads Latin-1, has not learned"
    return known_text(where, text, lambda char: _known(char, options), skip=options.skip_unknown, why=why)


def _known(char: str, options: MetaVoiceOptions) -> bool:
    return is_readable(char) or (not options.as_written and (char.isdecimal() or char in SIGNS))


def piece_characters(piece_seconds: float) -> int:
    """Limit the characters of a piece of this many seconds."""
    return max(1, round(piece_seconds * CHARACTERS_PER_SECOND))


def cut(text: str, most: int | None, window: int) -> list[str]:
    """Cut a text into normalized pieces of at most `most` characters that, with their usual speech, fit the
    second stage's window of `window` positions. most: None does not cut.
    """
    if most is None:
        return [normalise(text)]
    check_characters(text)  # before the cut, so that the error covers the whole text
    most = max(1, min(most, usual_characters(window)))
    return [piece for part in split(text, most) for piece in split(normalise(part), most)]


def choose_sampling(options: MetaVoiceOptions) -> FirstStageSampling:
    """Choose the first stage's sampling; a pair of scales selects the rule of upstream's slow inference.

    Raises UsageError for values that cannot be combined.
    """
    scale, nucleus = options.cfg_scale, options.top_p
    heat = FirstStageSampling.temperature if options.temperature is None else options.temperature
    top_k = None if options.top_k == 0 else options.top_k
    if not isinstance(scale, tuple):
        speaker = FirstStageSampling.cfg_scale if scale is None else float(scale)
        nucleus = FirstStageSampling.top_p if nucleus is None else nucleus
        return FirstStageSampling(speaker, temperature=heat, top_k=top_k, top_p=nucleus)
    if len(scale) != 2:
        raise UsageError(f"cfg_scale: {scale!r} is neither a number nor a pair of speaker and text")
    speaker, words = map(float, scale)
    nucleus = FirstStageSampling.top_p if nucleus is None and top_k is None else nucleus
    nucleus = None if nucleus == 1 else nucleus
    return FirstStageSampling(speaker, words, heat, nucleus, top_k, rule="slow")


def check_decoder(decoder: str, there: Sequence[str]) -> None:
    """Raise UsageError for a decoder that the model lacks; log the license of MBD's weights."""
    if decoder not in there:
        raise UsageError(
            "decoder: multi-band diffusion is not in this model; add it with convert-weights --include-mbd, "
            "or use vocos"
        )
    if decoder == "mbd":
        log_license()


@cache
def log_license() -> None:
    """Log, once per process, the license of the diffusion's weights."""
    _LOG.warning("decoder mbd: its weights are CC-BY-NC 4.0, not for commercial use; vocos has no such limit")


def read_voice(facts: MetaVoiceFacts, prompt: PromptLike) -> MetaVoiceVoice:
    """Check a prompt as a voice. An array is taken as a speaker vector.

    Raises UsageError for a missing prompt, for a prompt without a recording, and for less than two seconds in
    all; a warning is logged for less than 30.
    """
    if prompt is None:
        raise UsageError(
            f"prompt: MetaVoice needs a reference voice; give {ADVISED_SECONDS:g} s of speech or more with "
            "--ref-audio, in Python Prompt.of(audio=...)"
        )
    if isinstance(prompt, np.ndarray):
        return MetaVoiceVoice(vector=_vector(prompt, facts.first.speaker_embedding_size))
    if isinstance(prompt, str | bytes):
        raise UsageError(f"prompt: {prompt!r:.60} is text; give Prompt.from_file(path)")
    if not isinstance(prompt, Prompt):
        raise UsageError("prompt: MetaVoice needs audio of a voice; give Prompt.of(audio=...)")
    rate, waves = facts.vocoder.sample_rate, []
    for reference in prompt.references:
        wave = reference.samples(rate, reference.name, shortest=0)
        if wave is None:
            raise UsageError(f"{reference.name}: MetaVoice needs audio of a voice; give Prompt.of(audio=...)")
        waves.append(wave)
    _check_seconds(sum(map(len, waves)) / rate, prompt.references[0].name)
    trimmed = [trim(resample(wave, rate, SPEAKER_RATE, quality="HQ"), TRIM_DB) for wave in waves]
    return MetaVoiceVoice(utterances=tuple(np.ascontiguousarray(wave, np.float32) for wave in trimmed))


def _vector(given: np.ndarray, size: int) -> np.ndarray:
    if given.shape != (size,) or given.dtype.kind != "f" or not np.isfinite(given).all():
        raise UsageError(
            f"prompt: an array must be a speaker vector of {size} numbers, found shape {given.shape}, "
            f"{given.dtype}; give recordings as Prompt.of(audio=...)"
        )
    return given.astype(np.float32)


def _check_seconds(seconds: float, where: str) -> None:
    """Raise UsageError for a reference that is too short for a voice; log a warning for a short one."""
    if seconds < LEAST_SECONDS:
        raise UsageError(
            f"{where}: {seconds:.1f} s are too short for a voice; give {ADVISED_SECONDS:g} s of clear "
            f"speech, {LEAST_SECONDS:g} s at least"
        )
    if seconds < ADVISED_SECONDS:
        _LOG.warning(
            "reference: %.1f s; the voice is closer with %g s of clear speech",
            seconds,
            ADVISED_SECONDS,
        )


facts = MetaVoiceFacts.of
