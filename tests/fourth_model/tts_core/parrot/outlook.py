"""Estimate Parrot's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tts_core.parrot.memory import ParrotJob
from tts_core.parrot.memory import estimate as estimate


def plan(configs: Mapping[str, Any], text: str | None, seconds: float | None, batch: int) -> ParrotJob:
    """A word."""
    return ParrotJob(12 if seconds is None else math.ceil(seconds * configs["dac"].frame_rate))


def headline(job: ParrotJob, configs: Mapping[str, Any]) -> tuple[str, str]:
    """The lines above and below the table."""
    return f"MB at the peak of a word of {job.frames} frames", "Phases follow each other."
