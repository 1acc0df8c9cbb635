"""Estimate MetaVoice's memory from the flags of `mlx-port estimate`."""

from __future__ import annotations

import math

from tts_core.config import Configs, config_of
from tts_core.errors import UsageError
from tts_core.memory.terms import FOLLOWING
from tts_core.metavoice.config import FirstStageConfig, SecondStageConfig
from tts_core.metavoice.inputs import most_frames
from tts_core.metavoice.memory import MetaVoiceJob
from tts_core.metavoice.memory import estimate as estimate
from tts_core.metavoice.options import PIECE_SECONDS
from tts_core.metavoice.request import FRAME_RATE, cut, piece_characters, usual_characters
from tts_core.text import breaks
from tts_core.text.checks import check_words
from tts_core.text.duration import expected_seconds, longest_frames
from tts_core.text.spoken import spoken


def plan(configs: Configs, text: str | None, seconds: float | None, batch: int) -> MetaVoiceJob:
    """Return the run for one piece of a text, with multi-band diffusion if the model contains it.

    text, seconds: None is the longest that the windows allow. Raises UsageError.
    """
    first = config_of(configs, "metavoice", FirstStageConfig).max_position_embeddings
    second = config_of(configs, "metavoice_second_stage", SecondStageConfig).max_position_embeddings
    most, pieces = piece_characters(PIECE_SECONDS), list[str]()
    if text is None:
        ids = min(most, usual_characters(second)) + 1
    else:
        paused = breaks.read("text", text)
        check_words("text", paused.blanked)
        pieces, _ = paused.cut(lambda part: cut(spoken(part), most, second))
        ids = 1 + max(len(piece.encode("utf-8")) for piece in pieces)  # upper bound: no merged bytes
    room = most_frames(ids, first, second)
    if room < 1:
        raise UsageError(f"text: {ids} ids leave no room for speech; give a shorter text")
    if pieces and seconds is None:
        room = min(room, max(longest_frames(expected_seconds(piece), FRAME_RATE) for piece in pieces))
    frames = room if seconds is None else min(room, math.ceil(seconds * FRAME_RATE))
    decoder = "mbd" if "mbd" in configs else "vocos"
    return MetaVoiceJob(ids, frames, batch, decoder=decoder)


def headline(job: MetaVoiceJob, configs: Configs) -> tuple[str, str]:
    """Return the lines above and below the table."""
    pieces = "a piece" if job.batch == 1 else f"{job.batch} pieces"
    above = f"MB at the peak of {pieces} of {job.text_ids} ids and {job.frames / FRAME_RATE:.1f} s of speech"
    below = (
        f"Only the largest of voice, cache with activations, second stage and decoder is counted; {FOLLOWING}"
    )
    return above, below
