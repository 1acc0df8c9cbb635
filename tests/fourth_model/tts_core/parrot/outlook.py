"""Memory that Parrot takes on a backend, in bytes, also from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.memory.machine import Machine
from tts_core.memory.terms import Estimate, Phase, Term
from tts_core.memory.weights import kept_terms, weight_bytes
from tts_core.parrot.model import ParrotConfig


@dataclass(frozen=True)
class ParrotJob:
    """The longest speech: frames of a word."""

    frames: int


def estimate(configs: Configs, job: ParrotJob, machine: Machine) -> Estimate:
    """Estimate a job on one machine."""
    config, codec = config_of(configs, "parrot", ParrotConfig), config_of(configs, "dac", DacConfig)
    own = weight_bytes("parrot", config, machine.dtype, machine.held)
    kept = kept_terms(own, weight_bytes("dac", codec, machine.dtype), machine)
    rows = Term("rows", machine.size * job.frames * config.width, f"{job.frames} frames")
    wave = Term("wave", machine.wide * job.frames * codec.hop_length, "one word's sound")
    return Estimate(machine.backend, kept, (Phase("network", (rows,)), Phase("codec", (wave,))))


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> ParrotJob:
    """A word."""
    rate = config_of(configs, "dac", DacConfig).frame_rate
    return ParrotJob(12 if seconds is None else math.ceil(seconds * rate))


def headline(job: ParrotJob, configs: Configs) -> tuple[str, str]:
    """The lines above and below the table."""
    return f"MB at the peak of a word of {job.frames} frames", "Phases follow each other."
