"""Estimate Qwen3-TTS's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.config import Configs, config_of
from tts_core.memory.terms import FOLLOWING
from tts_core.qwen3.config import BASE, Qwen3Config
from tts_core.qwen3.memory import Qwen3Job
from tts_core.qwen3.memory import estimate as estimate
from tts_core.qwen3.options import PIECE_SECONDS, Qwen3Options
from tts_core.qwen3.request import cut, piece_characters
from tts_core.text import breaks
from tts_core.text.checks import check_words
from tts_core.text.pace import longest_seconds

TAGS = 16  # positions besides the text: its role, tags and marks
RECORDING = 10.0  # seconds of a Base model's recording


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> Qwen3Job:
    """Return the longest piece that the flags allow, after a recording of 10 s where the model takes one.

    text, seconds: None is a piece of 24 s. A character is a position at most. Raises UsageError.
    """
    config = config_of(configs, "qwen3", Qwen3Config)
    rate = config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate
    most = piece_characters(config, Qwen3Options())
    characters, longest = most or 1000, PIECE_SECONDS
    if text is not None:
        paused = breaks.read("text", text)
        check_words("text", paused.blanked)
        pieces, _ = paused.cut(lambda part: cut(part, most))
        characters = max(len(piece.encode()) for piece in pieces)
        longest = max(longest_seconds(piece, None) for piece in pieces)
    heard = math.ceil(RECORDING * rate) if config.mode == BASE else 0
    frames = math.ceil((longest if seconds is None else seconds) * rate)
    prompt = min(TAGS + characters + 2 * heard, config.max_positions - 1)
    return Qwen3Job(min(frames, config.max_positions - prompt), prompt, heard, batch)


def headline(job: Qwen3Job, configs: Configs) -> tuple[str, str]:
    """Return the lines above and below the table."""
    seconds = job.frames / config_of(configs, "qwen3_codec", Qwen3CodecConfig).frame_rate
    what = "a text" if job.texts == 1 else f"{job.texts} texts"
    above = f"MB at the peak of {what} of {seconds:.1f} s of speech"
    return above, f"Only the largest of recording, prompt, steps and codec is counted; {FOLLOWING}"
