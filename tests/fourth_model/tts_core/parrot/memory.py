"""Memory that Parrot takes on a backend, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.memory.terms import BYTES, Estimate, Phase, Term, libraries, stored_as, weight_bytes
from tts_core.parrot.config import ParrotConfig, parameter_shapes


@dataclass(frozen=True)
class ParrotJob:
    """The longest speech: frames of a word."""

    frames: int


def estimate(
    configs: Configs,
    job: ParrotJob,
    *,
    dtype: str,
    backend: str,
    quantization: Mapping[str, Any] | None,
) -> Estimate:
    """Estimate a job on one backend."""
    config, codec = config_of(configs, "parrot", ParrotConfig), config_of(configs, "dac", DacConfig)
    own = weight_bytes(parameter_shapes(config), dtype, quantization, is_large=lambda name: "beak" in name)
    other = weight_bytes(dac.parameter_shapes(codec), "float32")
    rows = Term("rows", BYTES[dtype] * job.frames * config.width, f"{job.frames} frames")
    wave = Term("wave", 4 * job.frames * codec.hop_length, "one word's sound")
    kept = Term("weights", own, stored_as(dtype, quantization)), Term("codec weights", other, "float32")
    return Estimate(
        backend, (*kept, libraries(backend)), (Phase("network", (rows,)), Phase("codec", (wave,)))
    )
