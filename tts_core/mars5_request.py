"""What a caller asks of MARS5, checked and completed before any weight is touched."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import numpy as np

from tts_core.arguments import check_names
from tts_core.errors import UsageError
from tts_core.mars5_diffusion import Diffusion, Draws
from tts_core.mars5_sampling import Mars5Settings
from tts_core.mars5_tokens import CodecPrompt, CodecVocabulary
from tts_core.noise import Noise, per_text
from tts_core.pieces import CHARACTERS_PER_SECOND, split
from tts_core.results import Prompt
from tts_core.spoken import spoken

PIECE_SECONDS = 10.0  # of speech, roughly: what the networks speak well at once
BANDWIDTH_ID = 1  # of the vocoder's norms: 3 kbps, as upstream sets it, although codes are those of 6 kbps
STAGES = ("codec", "AR", "NAR", "vocoder")
ARGUMENTS = (  # of `generate`, beside the fields of Mars5Settings
    *("prompt", "deep_clone", "cfg_scale", "settings", "as_written"),
    *("piece_seconds", "seed", "noise", "draws"),
)
Voice = Prompt | np.ndarray | None  # a bare (Q, P) array is the codes of a voice


class Overrides(TypedDict, total=False):
    """Fields of Mars5Settings, as keyword arguments of `generate`."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    typical_p: float | None
    freq_penalty: float | None
    presence_penalty: float | None
    rep_penalty_window: int | None
    eos_penalty_factor: float | None
    eos_penalty_decay: float | None
    eos_estimated_gen_length_factor: float | None
    generate_max_len_override: int | None
    timesteps: int | None
    x_0_temp: float | None
    nar_guidance_w: float | None
    q0_override_steps: int | None
    trim_db: float | None
    ref_audio_pad: float | None
    max_prompt_dur: float | None


@dataclass(frozen=True)
class Sizes:
    """What a request has to fit: the codec's numbers."""

    sample_rate: int  # Hz
    hop_length: int  # samples per frame
    n_codebooks: int
    codebook_size: int

    @property
    def frame_rate(self) -> float:
        """Frames per second."""
        return self.sample_rate / self.hop_length


@dataclass(frozen=True)
class Reference:
    """A voice, as samples (L,) float32 with the silence in front, or as codes (Q, P) int32; one is None.

    transcript: what it says, in a deep clone; None in a shallow one.
    """

    samples: np.ndarray | None
    codes: np.ndarray | None
    transcript: str | None
    frames: int  # P


@dataclass(frozen=True)
class Item:
    """A text, or a piece of one, and what it is spoken with."""

    text: str  # as it is read
    reference: Reference
    noise: Noise

    @property
    def deep(self) -> bool:
        """Whether the networks read what the reference says."""
        return self.reference.transcript is not None

    def expected_frames(self, frame_rate: float) -> int:
        """About how many frames its speech has, for the memory that it takes."""
        return int(frame_rate * len(self.text) / CHARACTERS_PER_SECOND) + 1

    def prompt(self, codes: np.ndarray, vocabulary: CodecVocabulary, settings: Mars5Settings) -> CodecPrompt:
        """What the autoregressive network reads. codes: (Q, P), the reference's.

        Raises UsageError where that leaves no room for speech.
        """
        factor, said = settings.eos_estimated_gen_length_factor, self.reference.transcript
        for what, words in (("text", self.text), ("transcript", said or "")):
            if found := [token for token in vocabulary.text.specials if token in words]:
                raise UsageError(f"{what}: {found[0]} is a special token of the model; leave it out")
        if said is None:
            prompt = vocabulary.shallow(self.text, length_factor=factor)
        else:
            prompt = vocabulary.deep(self.text, said, codes[0], length_factor=factor)
        if len(prompt.tokens) >= settings.max_len:
            what = "the text" if said is None else "reference and text"
            raise UsageError(
                f"text: {what} take {len(prompt.tokens)} ids of the {settings.max_len} that speech shares "
                "with them; shorten them, or raise generate_max_len_override"
            )
        return prompt


@dataclass(frozen=True)
class Request:
    """Texts, or the pieces of one text, ready to run. seed: None where the caller gave the noise."""

    items: list[Item]
    settings: Mars5Settings
    diffusion: Diffusion
    seed: int | None


def request_pieces(
    text: str,
    prompt: Prompt | None,
    sizes: Sizes,
    settings: Mars5Settings,
    *,
    deep_clone: bool | None,
    as_written: bool,
    piece_seconds: float | None,
    seed: int | None,
    noise: Noise | Sequence[Noise] | None,
    draws: Draws,
) -> Request:
    """One text in pieces, all with one voice; every value is checked.

    as_written: leave numbers, abbreviations and white space as they are. piece_seconds: about how long a
    piece may be; None does not cut. Raises UsageError naming the argument.
    """
    diffusion = _diffusion(settings, draws)
    reference = read_reference(prompt, sizes, settings, deep_clone=deep_clone)
    check_words("text", text)
    if reference.transcript is not None and not as_written:
        reference = replace(reference, transcript=as_spoken(reference.transcript))
    texts = cut(text if as_written else as_spoken(text), piece_seconds)
    seed = _check_seed(secrets.randbits(32) if seed is None else seed)
    sources = per_text(noise, [piece_seed(seed, place) for place in range(len(texts))])
    items = [Item(piece, reference, source) for piece, source in zip(texts, sources, strict=True)]
    return Request(items, settings, diffusion, None if noise is not None else seed)


def request_texts(
    texts: Sequence[str],
    prompts: Voice | Sequence[Voice],
    sizes: Sizes,
    settings: Mars5Settings,
    *,
    deep_clone: bool | None,
    seed: int | Sequence[int] | None,
    noise: Noise | Sequence[Noise] | None,
    draws: Draws,
) -> Request:
    """Several texts, each exactly as it is given and in one piece. prompts: one for all, or one per text.

    Raises UsageError naming the argument, and the text's place.
    """
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    if not texts:
        raise UsageError("texts: the list is empty")
    voices = list(prompts) if isinstance(prompts, Sequence) else [prompts] * len(texts)
    if len(voices) != len(texts):
        raise UsageError(f"prompts: {len(voices)} for {len(texts)} texts; give one, or one per text")
    seed = secrets.randbits(32) if seed is None else seed
    seeds = list(seed) if isinstance(seed, Sequence) else [seed] * len(texts)
    if len(seeds) != len(texts):
        raise UsageError(
            f"seed: {len(seeds)} values for {len(texts)} texts; give one number, or one per text"
        )
    sources = per_text(noise, [_check_seed(one) for one in seeds])
    for place, text in enumerate(texts, start=1):
        check_words(f"text {place}", text)
    read: dict[int, Reference] = {}  # a voice that several texts share is read once
    for voice in voices:
        if id(voice) not in read:
            read[id(voice)] = read_reference(voice, sizes, settings, deep_clone=deep_clone)
    items = [
        Item(text, read[id(voice)], source)
        for text, voice, source in zip(texts, voices, sources, strict=True)
    ]
    return Request(items, settings, _diffusion(settings, draws), None)


def _diffusion(settings: Mars5Settings, draws: Draws) -> Diffusion:
    return Diffusion(
        settings.timesteps,
        settings.nar_guidance_w,
        settings.x_0_temp,
        settings.q0_override_steps,
        draws=draws,
    )


def choose_settings(
    settings: Mars5Settings | None, cfg_scale: float | None, overrides: Overrides | dict[str, Any]
) -> Mars5Settings:
    """Settings, or the defaults, with the values that are given otherwise; cfg_scale is nar_guidance_w.

    Raises UsageError for an unknown name, with the nearest one, and for a value out of its range.
    """
    check_names(overrides, [*ARGUMENTS, *(field.name for field in fields(Mars5Settings))])
    given = {name: value for name, value in overrides.items() if value is not None}
    if cfg_scale is not None:
        if "nar_guidance_w" in given:
            raise UsageError("cfg_scale: the same as nar_guidance_w; give one of them")
        given["nar_guidance_w"] = cfg_scale
    return replace(settings or Mars5Settings(), **given)


def read_reference(
    prompt: Voice, sizes: Sizes, settings: Mars5Settings, *, deep_clone: bool | None
) -> Reference:
    """The voice, checked. deep_clone: None is deep where there is a transcript.

    Raises UsageError for no reference, one that is empty, silent, too short or too long, or whose numbers are
    none; for a deep clone without a transcript.
    """
    if prompt is None:
        raise UsageError(
            "prompt: MARS5 speaks with the voice of a reference; give Prompt(audio=...), 5 to 10 s of speech"
        )
    given = prompt if isinstance(prompt, Prompt) else Prompt(codes=prompt)
    deep = given.transcript is not None if deep_clone is None else deep_clone
    if deep and given.transcript is None:
        raise UsageError(
            "deep_clone: a deep clone reads what the reference says; give its transcript, or deep_clone=False"
        )
    transcript = given.transcript if deep else None
    if transcript is not None:
        check_words("transcript", transcript)
    if given.audio is not None:
        samples = _samples(given.audio, sizes, settings)
        return Reference(samples, None, transcript, -(-len(samples) // sizes.hop_length))
    codes = _codes(np.asarray(given.codes), sizes)
    _check_length(codes.shape[1] * sizes.hop_length, sizes, settings)
    return Reference(None, codes, transcript, codes.shape[1])


def _samples(audio: np.ndarray, sizes: Sizes, settings: Mars5Settings) -> np.ndarray:
    samples = np.asarray(audio)
    if samples.dtype.kind != "f":  # 16-bit samples read as they are would be 32,768 times too loud
        raise UsageError("prompt: audio must be floating-point samples in [-1, 1]")
    if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
        raise UsageError("prompt: audio must be a non-empty 1-D array of finite samples")
    if len(samples) < sizes.hop_length:
        raise UsageError(f"prompt: {len(samples)} samples are less than a frame; give a second or more")
    if not samples.any():
        raise UsageError("prompt: the reference is silent; give some seconds of speech")
    _check_length(len(samples), sizes, settings)
    pad = int(settings.ref_audio_pad * sizes.sample_rate)
    return np.pad(samples.astype(np.float32), (pad, 0))


def _check_length(samples: int, sizes: Sizes, settings: Mars5Settings) -> None:
    seconds = samples / sizes.sample_rate
    if seconds > settings.max_prompt_dur:
        raise UsageError(
            f"prompt: {seconds:.1f} s of reference, the networks were made for {settings.max_prompt_dur:g}; "
            "cut it to 5 to 10 s, or raise max_prompt_dur"
        )


def _codes(codes: np.ndarray, sizes: Sizes) -> np.ndarray:
    if codes.ndim != 2 or codes.shape[0] != sizes.n_codebooks or codes.shape[1] == 0:
        raise UsageError(f"prompt: codes of shape {codes.shape}; expected ({sizes.n_codebooks}, frames)")
    if codes.dtype.kind not in "iu":
        raise UsageError(f"prompt: codes of type {codes.dtype}; give whole numbers")
    if not (codes.min() >= 0 and codes.max() < sizes.codebook_size):
        raise UsageError(f"prompt: codes outside 0 .. {sizes.codebook_size - 1}")
    return codes.astype(np.int32)


def check_words(what: str, text: str) -> None:
    """Raise UsageError, which never quotes it, for a text without words or with control characters."""
    for place, char in enumerate(text, start=1):
        if unicodedata.category(char) in ("Cc", "Cs") and char not in "\t\n\r":
            raise UsageError(
                f"{what}: character {place} is U+{ord(char):04X}, a control character; remove it"
            )
    if not any(char.isalnum() for char in text):
        raise UsageError(f"{what}: there are no words in it; write what is to be said")


def as_spoken(text: str) -> str:
    """A text as it is read aloud: numbers and abbreviations in words, white space as single spaces."""
    return " ".join(spoken(text).split())


def cut(text: str, piece_seconds: float | None) -> list[str]:
    """The pieces of a text, each about so many seconds long at most."""
    if piece_seconds is None:
        return [text]
    if not 1 <= piece_seconds < float("inf"):
        raise UsageError(f"piece_seconds: {piece_seconds} is not a number of 1 and more")
    most = int(CHARACTERS_PER_SECOND * piece_seconds)
    return [text] if len(text) <= most else split(text, most)


def piece_seed(seed: int, place: int) -> int:
    """The seed of a text's piece: a stream of its own, whatever stands around it; the first's is `seed`."""
    if place == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)[0])


def _check_seed(seed: int) -> int:
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise UsageError(f"seed: {seed!r} is not a whole number in 0 .. 2**64 - 1")
    return int(seed)


def for_vocoder(codes: np.ndarray, books: int, size: int) -> np.ndarray:
    """Codes (Q, T) that a vocoder with so many codebooks of so many codes can read.

    The diffusion has one class more than there are codes. As upstream does, such a code takes the first entry
    of the next codebook; the vocoder's last one has no next, and takes its last entry.
    """
    if len(codes) < books:
        return codes
    return np.concatenate([codes[:-1], np.minimum(codes[-1:], size - 1)])
