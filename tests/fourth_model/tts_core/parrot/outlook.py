"""Memory that Parrot takes on a backend, in bytes, also from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.memory.terms import BYTES, Estimate, Phase, Term, libraries, stored_as, weight_bytes
from tts_core.parrot.spec import ParrotConfig, parameter_shapes


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


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> ParrotJob:
    """A word."""
    rate = config_of(configs, "dac", DacConfig).frame_rate
    return ParrotJob(12 if seconds is None else math.ceil(seconds * rate))


def headline(job: ParrotJob, configs: Configs) -> tuple[str, str]:
    """The lines above and below the table."""
    return f"MB at the peak of a word of {job.frames} frames", "Phases follow each other."
