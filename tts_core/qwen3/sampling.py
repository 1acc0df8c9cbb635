"""How Qwen3-TTS's codes are drawn: settings, and the numbers that a step uses.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tts_core.errors import CheckpointError, UsageError
from tts_core.nn.sampling import OFF, Sampler

GENERATION = "generation_config.json"
LEAST_FRAMES = 2  # before which speech does not end


@dataclass(frozen=True)
class Qwen3Choice:
    """Rule of one kind of draw. top_k: 0 keeps all; top_p: 1 keeps all. Raises UsageError for nonsense."""

    is_greedy: bool = False
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.is_greedy and not self.temperature > 0:
            raise UsageError(f"temperature: {self.temperature} is not positive")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise UsageError(f"top_k {self.top_k} must be at least 0, top_p {self.top_p} in (0, 1]")

    def numbers(self, repetition_penalty: float = 1.0) -> Qwen3Numbers:
        """Return the numbers by which a sampler draws."""
        return Qwen3Numbers(
            repetition_penalty=repetition_penalty,
            min_tokens=LEAST_FRAMES,
            temperature=0 if self.is_greedy else self.temperature,
            top_k=self.top_k,
            rising_top_p=1 - self.top_p if self.top_p < 1 else OFF["rising_top_p"],
        )


@dataclass(frozen=True)
class Qwen3Numbers:
    """A choice as its sampler draws."""

    repetition_penalty: float
    min_tokens: int
    temperature: float
    top_k: int
    rising_top_p: float


LAST = "temperature", "top_k", "rising_top_p"
FIRST = Sampler(Qwen3Numbers, ("repetition_penalty", "allowed_ids", "min_tokens", *LAST))
OTHERS = Sampler(Qwen3Numbers, LAST)


def allowed_ids(vocabulary: int, suppressed: int, eos: int) -> np.ndarray:
    """Return which first codes may be drawn: all but the `suppressed` last ids, and the end. → (V,) bool."""
    ids = np.arange(vocabulary)
    return (ids < vocabulary - suppressed) | (ids == eos)


@dataclass(frozen=True)
class Qwen3Sampling:
    """Rules of a frame's first code and of the others."""

    first: Qwen3Choice = Qwen3Choice()
    others: Qwen3Choice = Qwen3Choice()
    repetition_penalty: float = 1.05

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise UsageError(f"repetition_penalty: {self.repetition_penalty} is not positive")

    @cached_property
    def numbers(self) -> tuple[Qwen3Numbers, Qwen3Numbers]:
        """The numbers by which the samplers of first codes and of others draw."""
        return self.first.numbers(self.repetition_penalty), self.others.numbers()


def read_generation(config: Mapping[str, Any]) -> Qwen3Sampling:
    """Read generation_config.json, with the original's values for missing ones.

    Raises CheckpointError for values that are no settings.
    """

    def get(name: str, otherwise: Any) -> Any:
        value = config.get(name, otherwise)
        if type(value) is not type(otherwise) and not (type(otherwise) is float and type(value) is int):
            raise CheckpointError(f"{GENERATION}: {name} {value!r:.40} is no {type(otherwise).__name__}")
        return value

    def choice(prefix: str, sampled: str) -> Qwen3Choice:
        own = Qwen3Choice()
        return Qwen3Choice(
            is_greedy=not get(sampled, True),
            temperature=get(f"{prefix}temperature", own.temperature),
            top_k=get(f"{prefix}top_k", own.top_k),
            top_p=get(f"{prefix}top_p", own.top_p),
        )

    penalty = get("repetition_penalty", Qwen3Sampling().repetition_penalty)
    try:
        return Qwen3Sampling(choice("", "do_sample"), choice("subtalker_", "subtalker_dosample"), penalty)
    except UsageError as fault:
        raise CheckpointError(f"{GENERATION}: {fault}") from None
