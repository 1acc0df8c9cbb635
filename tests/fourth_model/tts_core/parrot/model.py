"""The facts of Parrot, a model that only this test has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tts_core.codecs.dac import DAC_44KHZ
from tts_core.config import check_numbers, exact_fields
from tts_core.models import Configs, Documents, Model, Network

REPOSITORY = "birds/parrot"
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


def check(configs: Configs, documents: Documents) -> None:
    """Any words and any codec fit."""


MODEL = Model(
    name="parrot",
    title="Parrot",
    networks={
        "parrot": Network(
            title="Parrot",
            folder="",
            network="parrot.parrot:Parrot",
            parameter_shapes=parameter_shapes,
            read_converted=read_converted,
            stays_float32=lambda name: name.startswith("norm"),
            is_large=lambda name: name == "beak.weight",
            documents=("words.txt",),
            repository=REPOSITORY,
            license="cc0-1.0",
        )
    },
    parts=("parrot", "dac"),
    check=check,
    sizes={REPOSITORY: {"parrot": ParrotConfig(32), "dac": DAC_44KHZ}},
    on_mps=("float16", "a parrot overflows nowhere"),
    references=0,
    transcript="unused",
    example='--text "Polly"',
    fed=True,
)
