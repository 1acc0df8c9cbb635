"""The facts of Parrot, a model that only this test has."""

from __future__ import annotations

from tts_core.codecs.dac import DAC_44KHZ, DacConfig
from tts_core.config import Config, config_of
from tts_core.models import Code, Configs, Documents, Model, Network, Speed
from tts_core.parrot.options import ParrotOptions

REPOSITORY = "birds/parrot"
LOGITS = 3


class ParrotConfig(Config, title="Parrot config"):
    """Shape of a Parrot."""

    width: int


def parameter_shapes(config: ParrotConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name → shape, in the order of the network."""
    return {"norm.weight": (config.width,), "beak.weight": (LOGITS, config.width)}


def check(configs: Configs, documents: Documents) -> None:
    """Any words and any codec fit."""


def code() -> Code:
    """Import the functions."""
    from tts_core.parrot.footprint import PLAN
    from tts_core.parrot.probes import probes
    from tts_core.parrot.request import ParrotFacts
    from tts_core.parrot.speech import speak

    return Code(ParrotFacts.of, speak, PLAN, probes)


MODEL = Model(
    name="parrot",
    title="Parrot",
    options=ParrotOptions,
    code=code,
    networks={
        "parrot": Network(
            title="Parrot",
            folder="",
            network="parrot.parrot:Parrot",
            parameter_shapes=parameter_shapes,
            read_converted=ParrotConfig.from_dict,
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
    speed=Speed(
        stages=("speech",),
        unit="word",
        text="Polly wants a cracker now",
        frame_rate=lambda configs: config_of(configs, "dac", DacConfig).frame_rate,
        layers=lambda configs: 1,
        reads=lambda name: True,
        documents=lambda configs: {"parrot": {"words.txt": "Polly"}, "dac": {}},
    ),
)
