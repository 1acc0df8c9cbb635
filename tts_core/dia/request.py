"""What a caller asks of Dia, checked and completed before any weight is touched."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tts_core.dia.config import DiaConfig
from tts_core.dia.sampling import Sampling
from tts_core.dia.text import prepare, tokenize
from tts_core.errors import UsageError
from tts_core.noise import Noise, per_text
from tts_core.results import Prompt

PromptLike = (
    Prompt | np.ndarray | None
)  # a bare (Q, P) array is codes whose transcript already stands in the text


def prepared(texts: Sequence[str], prompts: Sequence[PromptLike] | None, limit: int) -> list[str]:
    """The texts that are read, by the rules of tts_core.dia.text; a prompt's transcript goes in front."""
    return [prepare(text, limit, transcript=said) for text, said in _with_transcripts(texts, prompts)]


def joined(texts: Sequence[str], prompts: Sequence[PromptLike] | None) -> list[str]:
    """The texts exactly as given; a prompt's transcript and a space go in front."""
    pairs = _with_transcripts(texts, prompts)
    return [text if said is None else f"{said.rstrip()} {text.lstrip()}" for text, said in pairs]


def _with_transcripts(
    texts: Sequence[str], prompts: Sequence[PromptLike] | None
) -> list[tuple[str, str | None]]:
    if isinstance(texts, str):
        raise UsageError("texts: got one string; give a list of strings")
    prompts = [None] * len(texts) if prompts is None else prompts
    if len(prompts) != len(texts):
        raise UsageError(
            f"prompts: {len(prompts)} for {len(texts)} texts; give one per text, None where there is none"
        )
    for place, prompt in enumerate(prompts):
        if isinstance(prompt, Prompt) and prompt.transcript is None:
            raise UsageError(
                f"prompt {place + 1}: its transcript is missing; Dia reads what the reference says"
            )
    transcripts = [prompt.transcript if isinstance(prompt, Prompt) else None for prompt in prompts]
    return list(zip(texts, transcripts, strict=True))


@dataclass(frozen=True)
class Request:
    """A batch of texts, ready to run. Every list has one entry a text."""

    tokens: list[np.ndarray]  # (S,) int32
    prompts: list[np.ndarray | None]  # (Q, P) int32
    max_frames: list[int]
    seeds: list[int | None]  # None where the caller gave the noise instead
    noise: list[Noise]
    sampling: Sampling
    last_channel_free: bool

    def uniform(self, steps: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
        """Numbers for every text's next row: (B, *shape) float32; None where nothing is drawn.

        steps: as DelayGrid tells them. A text still inside its prompt (step < 0) takes none from its source.
        """
        if self.sampling.temperature == 0:
            return None
        none = np.full(shape, 0.5, np.float32)
        return np.stack(
            [
                source.uniform(int(step), shape) if step >= 0 else none
                for source, step in zip(self.noise, steps, strict=True)
            ]
        )


def make_request(
    config: DiaConfig,
    texts: Sequence[str],
    prompts: Sequence[PromptLike] | None,
    encode_prompt: Callable[[np.ndarray], np.ndarray],
    *,
    temperature: float | None,
    cfg_scale: float | None,
    top_k: int | None,
    top_p: float | None,
    max_frames: int | Sequence[int] | None,
    seed: int | Sequence[int] | None,
    noise: Noise | Sequence[Noise] | None,
    last_channel_free: bool,
) -> Request:
    """Fill in the model's defaults and check every value.

    texts: as they are read, prompts' transcripts included (`prepared`, `joined`).
    encode_prompt: (L,) float32 samples → (Q, P) int32 codes; called last, when all else is known to be good.
    Raises UsageError naming the argument, and for batches the text's place.
    """
    if not texts:
        raise UsageError("texts: the list is empty")
    prompts = [None] * len(texts) if prompts is None else prompts
    given = {"temperature": temperature, "cfg_scale": cfg_scale, "top_k": top_k, "top_p": top_p}
    sampling = replace(config.sampling, **{name: value for name, value in given.items() if value is not None})
    given_seeds = numbers_per_text("seed", secrets.randbits(32) if seed is None else seed, len(texts))
    sources = per_text(noise, given_seeds)
    seeds: list[int | None] = [None] * len(texts) if noise is not None else [*given_seeds]
    tokens = [_tokens(config, text, place) for place, text in enumerate(texts)]
    if max_frames is not None:
        check_lengths(numbers_per_text("max_frames", max_frames, len(texts)))
    checked = [check_prompt(config, prompt, place) for place, prompt in enumerate(prompts)]
    codes = [encode_prompt(each) if each is not None and each.ndim == 1 else each for each in checked]
    lengths = [0 if prompt is None else prompt.shape[1] for prompt in codes]
    room = [config.max_frames - length for length in lengths]
    short = next((place for place, frames in enumerate(room) if frames < 1), None)
    if short is not None:
        raise UsageError(
            f"prompt {short + 1}: {lengths[short]} frames fill all of the model's {config.max_frames}"
        )
    wanted = room if max_frames is None else numbers_per_text("max_frames", max_frames, len(texts))
    over = next((place for place, frames in enumerate(wanted) if frames > room[place]), None)
    if over is not None:
        raise UsageError(
            f"max_frames: {wanted[over]} exceeds the {room[over]} frames that this model has room for"
        )
    return Request(tokens, codes, wanted, seeds, sources, sampling, last_channel_free)


def _tokens(config: DiaConfig, text: str, place: int) -> np.ndarray:
    tokens = tokenize(text)
    if len(tokens) == 0:
        raise UsageError(f"text {place + 1}: empty; there is nothing to say")
    if len(tokens) > config.max_text_bytes:
        raise UsageError(
            f"text {place + 1}: {len(tokens)} bytes, limit {config.max_text_bytes}; split it at a turn"
        )
    return tokens


def check_prompt(config: DiaConfig, prompt: PromptLike, place: int) -> np.ndarray | None:
    """Its codes (Q, P) int32, or its samples (L,) float32 where they are still to be encoded.

    place: of its text in the batch. Raises UsageError for what is neither.
    """
    if prompt is None:
        return None
    given, audio = (prompt.codes, prompt.audio) if isinstance(prompt, Prompt) else (prompt, None)
    if given is None:
        samples = np.asarray(audio)
        if samples.dtype.kind != "f":  # 16-bit samples read as they are would be 32,768 times too loud
            raise UsageError(f"prompt {place + 1}: audio must be floating-point samples in [-1, 1]")
        if samples.ndim != 1 or len(samples) == 0 or not np.isfinite(samples).all():
            raise UsageError(f"prompt {place + 1}: audio must be a non-empty 1-D array of finite samples")
        return samples.astype(np.float32)
    codes = np.asarray(given)
    channels, entries = config.decoder_config.num_channels, config.eos_token_id
    if codes.ndim != 2 or codes.shape[0] != channels:
        raise UsageError(f"prompt {place + 1}: codes of shape {codes.shape}; expected ({channels}, frames)")
    if codes.dtype.kind not in "iu":
        raise UsageError(f"prompt {place + 1}: codes of type {codes.dtype}; give whole numbers")
    if codes.size and not (codes.min() >= 0 and codes.max() < entries):
        raise UsageError(f"prompt {place + 1}: codes outside 0 .. {entries - 1}")
    return codes.astype(np.int32)


def numbers_per_text(name: str, value: int | Sequence[int], texts: int) -> list[int]:
    """One whole number for each text. Raises UsageError naming the argument."""
    values = list(value) if isinstance(value, Sequence | np.ndarray) else [value] * texts
    if len(values) != texts:
        raise UsageError(f"{name}: {len(values)} values for {texts} texts; give one number, or one per text")
    strange = next((one for one in values if not isinstance(one, int | np.integer)), None)
    if strange is not None:
        raise UsageError(f"{name}: {strange!r} is not a whole number")
    return [int(one) for one in values]


def check_lengths(frames: Sequence[int]) -> None:
    """Raise UsageError for a length that is not positive."""
    if min(frames) < 1:
        raise UsageError(f"max_frames: {min(frames)} is below 1")
