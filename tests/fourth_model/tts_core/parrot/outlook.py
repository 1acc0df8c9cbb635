"""Estimate Parrot's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.parrot.memory import ParrotJob
from tts_core.parrot.memory import estimate as estimate


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> ParrotJob:
    """A word."""
    rate = config_of(configs, "dac", DacConfig).frame_rate
    return ParrotJob(12 if seconds is None else math.ceil(seconds * rate))


def headline(job: ParrotJob, configs: Configs) -> tuple[str, str]:
    """The lines above and below the table."""
    return f"MB at the peak of a word of {job.frames} frames", "Phases follow each other."
