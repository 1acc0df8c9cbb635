"""What a caller asks of MARS5, checked and completed before any weight is touched."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import numpy as np

from tts_core.errors import UsageError, check_names
from tts_core.mars5.diffusion import Diffusion, Draws
from tts_core.mars5.reference import Reference, Sizes, Voice, read_reference
from tts_core.mars5.sampling import Mars5Settings
from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary
from tts_core.noise import Noise, check_seed, per_text, piece_seed
from tts_core.text.checks import check_words
from tts_core.text.sentences import CHARACTERS_PER_SECOND, split
from tts_core.text.spoken import spoken

PIECE_SECONDS = 10.0  # of speech, roughly: what the networks speak well at once
BANDWIDTH_ID = 1  # of the vocoder's norms: 3 kbps, as upstream sets it, although codes are those of 6 kbps
STAGES = ("codec", "AR", "NAR", "vocoder")
ARGUMENTS = (  # of `generate`, beside the fields of Mars5Settings
    *("prompt", "deep_clone", "cfg_scale", "settings", "as_written"),
    *("piece_seconds", "seed", "noise", "draws"),
)


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
class Item:
    """A text, or a piece of one, and what it is spoken with."""

    text: str  # as it is read
    reference: Reference
    noise: Noise
    where: str = "text"  # its name in messages

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
        for what, words in ((self.where, self.text), ("transcript", said or "")):
            if found := [token for token in vocabulary.text.specials if token in words]:
                raise UsageError(f"{what}: {found[0]} is a special token of the model; leave it out")
        if said is None:
            prompt = vocabulary.shallow(self.text, length_factor=factor)
        else:
            prompt = vocabulary.deep(self.text, said, codes[0], length_factor=factor)
        if len(prompt.tokens) >= settings.max_len:
            what = "the text" if said is None else "reference and text"
            raise UsageError(
                f"{self.where}: {what} take {len(prompt.tokens)} ids of the {settings.max_len} that speech "
                "shares with them; shorten them, or raise generate_max_len_override"
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
    prompt: Voice,
    sizes: Sizes,
    settings: Mars5Settings,
    *,
    deep_clone: bool | None,
    as_written: bool,
    piece_seconds: float | None,
    seed: int | None,
    noise: Noise | Sequence[Noise] | None,
    draws: Draws,
    where: str = "text",
) -> Request:
    """One text in pieces, all with one voice; every value is checked.

    as_written: leave numbers, abbreviations and white space as they are. piece_seconds: about how long a
    piece may be; None does not cut. where: the text's name in messages. Raises UsageError naming the
    argument.
    """
    diffusion = _diffusion(settings, draws)
    reference = read_reference(prompt, sizes, settings, deep_clone=deep_clone)
    check_words(where, text)
    if reference.transcript is not None and not as_written:
        reference = replace(reference, transcript=as_spoken(reference.transcript))
    texts = cut(text if as_written else as_spoken(text), piece_seconds)
    seed = check_seed(secrets.randbits(32) if seed is None else seed)
    sources = per_text(noise, [piece_seed(seed, place) for place in range(len(texts))])
    items = [Item(piece, reference, source, where) for piece, source in zip(texts, sources, strict=True)]
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
    voices, seeds = _for_each(texts, prompts, seed)
    sources = per_text(noise, [check_seed(one) for one in seeds])
    for place, text in enumerate(texts, start=1):
        check_words(f"text {place}", text)
    read: dict[int, Reference] = {}  # a voice that several texts share is read once
    for voice in voices:
        if id(voice) not in read:
            read[id(voice)] = read_reference(voice, sizes, settings, deep_clone=deep_clone)
    items = [
        Item(text, read[id(voice)], source, f"text {place}")
        for place, (text, voice, source) in enumerate(zip(texts, voices, sources, strict=True), start=1)
    ]
    return Request(items, settings, _diffusion(settings, draws), None)


def request_batch(
    texts: Sequence[str],
    prompts: Voice | Sequence[Voice],
    sizes: Sizes,
    settings: Mars5Settings,
    *,
    deep_clone: bool | None,
    as_written: bool,
    piece_seconds: float | None,
    seed: int | Sequence[int] | None,
    noise: Noise | Sequence[Noise | Sequence[Noise]] | None,
    draws: Draws,
) -> list[tuple[Voice, Request]]:
    """Several texts, each in pieces, with its voice. prompts, seed, noise: one for all, or one per text.

    Other arguments as of `request_pieces`. Raises UsageError naming the argument, and the text's place.
    """
    voices, seeds = _for_each(texts, prompts, seed)
    sources = list(noise) if isinstance(noise, Sequence) else [noise] * len(texts)
    if len(sources) != len(texts):
        raise UsageError(f"noise: {len(sources)} sources for {len(texts)} texts; give one, or one per text")
    requests = [
        request_pieces(
            text,
            voice,
            sizes,
            settings,
            deep_clone=deep_clone,
            as_written=as_written,
            piece_seconds=piece_seconds,
            seed=own,
            noise=source,
            draws=draws,
            where=f"text {place}",
        )
        for place, (text, voice, own, source) in enumerate(
            zip(texts, voices, seeds, sources, strict=True), start=1
        )
    ]
    return list(zip(voices, requests, strict=True))


def _for_each(
    texts: Sequence[str], prompts: Voice | Sequence[Voice], seed: int | Sequence[int] | None
) -> tuple[list[Voice], list[int]]:
    """A voice and a seed for each text: one for all, or one per text."""
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    if not texts:
        raise UsageError("texts: the list is empty")
    voices = list(prompts) if isinstance(prompts, Sequence) else [prompts] * len(texts)
    if len(voices) != len(texts):
        raise UsageError(f"prompts: {len(voices)} for {len(texts)} texts; give one, or one per text")
    seed = secrets.randbits(32) if seed is None else seed
    seeds = list(seed) if isinstance(seed, Sequence | np.ndarray) else [seed] * len(texts)
    if len(seeds) != len(texts):
        raise UsageError(
            f"seed: {len(seeds)} values for {len(texts)} texts; give one number, or one per text"
        )
    return voices, seeds


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


def for_vocoder(codes: np.ndarray, books: int, size: int) -> np.ndarray:
    """Codes (Q, T) that a vocoder with so many codebooks of so many codes can read.

    The diffusion has one class more than there are codes. As upstream does, such a code takes the first entry
    of the next codebook; the vocoder's last one has no next, and takes its last entry.
    """
    if len(codes) < books:
        return codes
    return np.concatenate([codes[:-1], np.minimum(codes[-1:], size - 1)])
