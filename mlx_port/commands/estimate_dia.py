"""What Dia makes of the flags of `mlx-port estimate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig
from tts_core.dia.long_text import cut_text
from tts_core.dia.memory import BACKENDS, Estimate, Job, estimate
from tts_core.dia.text import prepare, tokenize
from tts_core.errors import UsageError


def guess(
    configs: Mapping[str, Any],
    text: str | None,
    seconds: float | None,
    batch: int,
    *,
    dtype: str,
    quantization: Mapping[str, Any] | None,
) -> tuple[list[Estimate], Job]:
    """Estimates on each backend, of the longest run that the flags allow."""
    config, codec = configs["dia"], configs["dac"]
    job = plan(config, codec, text, seconds, batch)
    how: dict[str, Any] = {"dtype": dtype, "quantization": quantization}
    return [estimate(config, codec, job, backend=backend, **how) for backend in BACKENDS], job


def plan(config: DiaConfig, codec: DacConfig, text: str | None, seconds: float | None, batch: int) -> Job:
    """The longest run that the flags allow: what is not told is taken as long as the model allows."""
    limit = config.max_text_bytes
    size = limit  # pieces fill a window at most
    if text is not None and len(cut_text(config, codec, text, None, "auto")) == 1:
        size = len(tokenize(prepare(text, limit)))
    frames = config.max_frames if seconds is None else math.ceil(seconds * codec.frame_rate)
    if frames > config.max_frames:
        longest = config.max_frames / codec.frame_rate
        raise UsageError(f"seconds: {seconds:g} is more than this model can make, {longest:.1f}")
    return Job(size, frames, batch=batch)


def headline(job: Job, configs: Mapping[str, Any]) -> tuple[str, str]:
    """The lines above and below the table."""
    texts = "a text" if job.batch == 1 else f"{job.batch} texts"
    seconds = job.frames / configs["dac"].frame_rate
    together = "The larger of activations and codec counts: they are not there together."
    first = " Prompts are encoded before that." if job.prompt_frames else ""
    above = f"MB at the peak of {texts} of {job.text_bytes} bytes and {seconds:.1f} s of speech"
    return above, together + first
