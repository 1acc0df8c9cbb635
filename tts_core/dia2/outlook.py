"""Estimate Dia2's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.codecs.mimi import MimiConfig
from tts_core.config import Configs, config_of
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.machine import MAX_PADDING
from tts_core.dia2.memory import Dia2Job
from tts_core.dia2.memory import estimate as estimate
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.pieces import room
from tts_core.dia2.request import longest_frames, longest_voice
from tts_core.dia2.script import SPEAKERS
from tts_core.errors import UsageError
from tts_core.memory.terms import FOLLOWING
from tts_core.text import breaks
from tts_core.text.checks import check_words
from tts_core.text.duration import expected_seconds


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> Dia2Job:
    """Return the longest run that the flags allow; texts of a batch share their steps.

    Later pieces of a text that is longer than a run also read the voice of the first one. Pieces are cut by
    the steps that words take at most; a word of more than 6 tokens, which only a tokenizer knows, takes more.
    Raises UsageError for more seconds than one run has.
    """
    config, rate = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig).frame_rate
    most = longest_frames(config)
    frames, voice = most, 0
    if text is not None:
        paused = breaks.read("text", text)
        check_words("text", paused.blanked)
        usual = 2 * expected_seconds(paused.blanked) + sum(paused.silences)
        frames = min(most, math.ceil(usual * rate) + config.longest_delay)
        words = sum(word.upper() not in SPEAKERS for word in paused.blanked.split())
        steps = words * (1 + MAX_PADDING) + sum(paused.silences) * rate
        if steps > room(config, Dia2Options().initial_padding):
            frames, voice = most, longest_voice(config, rate)
    if seconds is not None:
        frames = math.ceil(seconds * rate)
    if frames > most:
        raise UsageError(f"seconds: {seconds:g} is more than this model's limit, {most / rate:.1f}")
    return Dia2Job(frames, voice, texts=batch)


def headline(job: Dia2Job, configs: Configs) -> tuple[str, str]:
    """Return the lines above and below the table."""
    seconds = job.frames / config_of(configs, "mimi", MimiConfig).frame_rate
    what = "a text" if job.texts == 1 else f"{job.texts} texts"
    above = f"MB at the peak of {what} of {seconds:.1f} s of speech"
    return above, f"Only the larger of activations and codec is counted; {FOLLOWING}"
