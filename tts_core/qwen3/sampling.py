"""How Qwen3-TTS's codes are drawn: settings, and the numbers that a step uses.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts_core.config import mapping
from tts_core.errors import UsageError

LEAST_FRAMES = 2  # before which speech does not end


@dataclass(frozen=True)
class Choice:
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


@dataclass(frozen=True)
class Sampling:
    """Rules of a frame's first code and of the others."""

    first: Choice = Choice()
    others: Choice = Choice()
    repetition_penalty: float = 1.05

    def __post_init__(self) -> None:
        if not self.repetition_penalty > 0:
            raise UsageError(f"repetition_penalty: {self.repetition_penalty} is not positive")


def read_generation(config: Mapping[str, Any]) -> Sampling:
    """Read generation_config.json, with the original's values for missing ones."""
    config = mapping(config, "generation_config.json")

    def choice(prefix: str, sampled: str) -> Choice:
        own = Choice()
        return Choice(
            is_greedy=not config.get(sampled, True),
            temperature=config.get(f"{prefix}temperature", own.temperature),
            top_k=config.get(f"{prefix}top_k", own.top_k),
            top_p=config.get(f"{prefix}top_p", own.top_p),
        )

    penalty = config.get("repetition_penalty", Sampling().repetition_penalty)
    return Sampling(choice("", "do_sample"), choice("subtalker_", "subtalker_dosample"), penalty)
