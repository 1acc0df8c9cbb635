"""Parrot's numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tts_core.config import check_numbers, exact_fields

LOGITS = 3


@dataclass(frozen=True)
class ParrotConfig:
    """Shape of a Parrot."""

    width: int

    def __post_init__(self) -> None:
        check_numbers(self, "Parrot config")

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of our own config.json."""
        return asdict(self)


def read_converted(config: Mapping[str, Any]) -> ParrotConfig:
    """Read our own schema, strictly."""
    return ParrotConfig(**exact_fields(ParrotConfig, config, "Parrot config"))


def parameter_shapes(config: ParrotConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name → shape, in the order of the network."""
    return {"norm.weight": (config.width,), "beak.weight": (LOGITS, config.width)}
