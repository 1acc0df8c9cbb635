"""Estimate MARS5's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.codecs.encodec import EncodecConfig
from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.mars5.memory import Mars5Job
from tts_core.mars5.memory import estimate as estimate
from tts_core.mars5.options import MAX_LEN, PIECE_SECONDS, Mars5Options
from tts_core.mars5.reference import as_spoken
from tts_core.mars5.request import cut
from tts_core.memory.terms import FOLLOWING
from tts_core.text import breaks
from tts_core.text.checks import check_words
from tts_core.text.pace import CHARACTERS_PER_SECOND


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> Mars5Job:
    """Return the run for one piece of each text: a deep clone with the longest reference.

    text, seconds: None is a whole piece. Raises UsageError.
    """
    rate = config_of(configs, "encodec", EncodecConfig).frame_rate
    longest = int(CHARACTERS_PER_SECOND * PIECE_SECONDS)
    if text is not None:
        paused = breaks.read("text", text)
        check_words("text", paused.blanked)
        pieces, _ = paused.cut(lambda part: cut(as_spoken(part), PIECE_SECONDS))
        longest = max(map(len, pieces))
    reference = math.ceil(Mars5Options().max_prompt_dur * rate)
    frames = math.ceil((longest / CHARACTERS_PER_SECOND if seconds is None else seconds) * rate)
    if frames + reference > MAX_LEN:
        most = (MAX_LEN - reference) / rate
        raise UsageError(f"seconds: {seconds:g} is more than the longest piece of MARS5, {most:.1f}")
    # worst case without merges: an id for each character and each code
    ids = min(longest + reference, MAX_LEN)
    return Mars5Job(ids, frames, reference, deep=True, batch=batch, text_ids=longest)


def headline(job: Mars5Job, configs: Configs) -> tuple[str, str]:
    """Return the lines above and below the table."""
    rate = config_of(configs, "encodec", EncodecConfig).frame_rate
    speech = f"{job.frames / rate:.1f} s of speech"
    reference = f"{job.prompt_frames / rate:.1f} s of reference"
    if job.batch == 1:
        return (
            f"MB at the peak of a piece of {speech}, a deep clone of {reference}",
            f"Only the largest of voice, cache with activations, NAR and vocoder is counted; {FOLLOWING}",
        )
    return (
        f"MB at the peak of {job.batch} pieces of {speech}, deep clones of {reference}",
        "Beside the cache only the largest of voice, activations, NAR and vocoder is counted; a GPU runs "
        "several diffusions at once where more memory is free.",
    )
