"""Estimate MARS5's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tts_core.errors import UsageError
from tts_core.mars5.memory import Mars5Job
from tts_core.mars5.memory import estimate as estimate
from tts_core.mars5.options import MAX_LEN, PIECE_SECONDS, Mars5Options
from tts_core.mars5.reference import as_spoken
from tts_core.mars5.request import cut
from tts_core.text.checks import check_words
from tts_core.text.sentences import CHARACTERS_PER_SECOND


def plan(configs: Mapping[str, Any], text: str | None, seconds: float | None, batch: int) -> Mars5Job:
    """One piece of a text, in a deep clone of as much reference as the model takes; None is as long as a
    piece is. Raises UsageError.
    """
    if batch != 1:
        raise UsageError("batch: MARS5 speaks texts one by one; leave the flag out")
    rate, longest = configs["encodec"].frame_rate, int(CHARACTERS_PER_SECOND * PIECE_SECONDS)
    if text is not None:
        check_words("text", text)
        longest = max(map(len, cut(as_spoken(text), PIECE_SECONDS)))
    reference = math.ceil(Mars5Options().max_prompt_dur * rate)
    frames = math.ceil((longest / CHARACTERS_PER_SECOND if seconds is None else seconds) * rate)
    if frames + reference > MAX_LEN:
        most = (MAX_LEN - reference) / rate
        raise UsageError(f"seconds: {seconds:g} is more than MARS5 makes of a piece, {most:.1f}")
    # an id may be a character, or a code: no merges, at the most
    return Mars5Job(min(longest + reference, MAX_LEN), frames, reference, deep=True)


def headline(job: Mars5Job, configs: Mapping[str, Any]) -> tuple[str, str]:
    """The lines above and below the table."""
    rate = configs["encodec"].frame_rate
    above = (
        f"MB at the peak of a piece of {job.frames / rate:.1f} s of speech, a deep clone of "
        f"{job.prompt_frames / rate:.1f} s of reference"
    )
    below = (
        "Only the largest of voice, cache with activations, NAR and vocoder is counted; "
        "they are never live at once."
    )
    return above, below
