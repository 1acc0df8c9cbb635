"""Estimate Dia's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.codecs.dac import DacConfig
from tts_core.config import Configs, config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.memory import DiaJob
from tts_core.dia.memory import estimate as estimate
from tts_core.dia.pieces import read
from tts_core.errors import UsageError
from tts_core.memory.terms import FOLLOWING
from tts_core.text.duration import longest_frames


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> DiaJob:
    """Return the longest run that the flags allow; None is the model's limit. Raises UsageError."""
    config, codec = config_of(configs, "dia", DiaConfig), config_of(configs, "dac", DacConfig)
    most = config.max_frames
    size = config.max_text_bytes  # a piece and its prompt fill at most one window
    if text is not None:
        pieces = read(text, None, 0, config, codec.frame_rate, "auto")
        if len(pieces) == 1:
            size = len(pieces[0].tokens)
            most = min(most, longest_frames(pieces[0].seconds, codec.frame_rate))
    frames = most if seconds is None else math.ceil(seconds * codec.frame_rate)
    if frames > config.max_frames:
        longest = config.max_frames / codec.frame_rate
        raise UsageError(f"seconds: {seconds:g} is more than this model's limit, {longest:.1f}")
    return DiaJob(size, frames, batch=batch)


def headline(job: DiaJob, configs: Configs) -> tuple[str, str]:
    """Return the lines above and below the table."""
    texts = "a text" if job.batch == 1 else f"{job.batch} texts"
    seconds = job.frames / config_of(configs, "dac", DacConfig).frame_rate
    above = f"MB at the peak of {texts} of {job.text_bytes} bytes and {seconds:.1f} s of speech"
    return above, f"Only the larger of activations and codec is counted; {FOLLOWING}"
