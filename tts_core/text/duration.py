"""Expected seconds of a text read aloud, and the limit of its speech."""

from __future__ import annotations

import logging
import math
import re

from tts_core.text.pace import CHARACTERS_PER_SECOND
from tts_core.text.spoken import spoken

_LOG = logging.getLogger("tts_core")
_END_MARK = re.compile(r"[.!?…。！？][\"'”’»)\]]*+\s*+\Z")
PATIENCE, SECONDS_MORE = 2.0, 2.0  # times the expected seconds, and seconds more


def expected_seconds(text: str, pauses: int = 0) -> float:
    """Estimate the seconds of a text; numbers count as words.

    pauses: additional characters, as for changes of the speaker.
    """
    return (len(spoken(text)) + pauses) / CHARACTERS_PER_SECOND


def longest_frames(expected: float, frame_rate: float) -> int:
    """Limit the frames of a text's speech if the caller gives no limit.

    Speech that takes longer has gone astray: networks then repeat themselves or babble on.
    expected: seconds.  frame_rate: Hz.
    """
    return int(PATIENCE * math.ceil(expected * frame_rate) + SECONDS_MORE * frame_rate)


def warn_of_piece(index: int, pieces: int, seconds: float, why: str = "") -> None:
    """Log that a piece's speech, of so many seconds, reached the limit of its text. index: from 1."""
    _LOG.warning(
        "text: piece %d of %d did not end within %.1f s%s and was cut there; another seed or shorter "
        "pieces may help",
        *(index, pieces, seconds, why),
    )


def warn_of_cut(frames: int, frame_rate: float, text: str) -> None:
    """Log that speech reached the limit of its text.

    frames: made.
    frame_rate: Hz.
    text: as the network read it; without an end mark, a full stop is advised.
    """
    advice = "another seed may help"
    if not _END_MARK.search(text):
        advice = "another seed, or a full stop at the end of the text, may help"
    _LOG.warning("speech: did not end within %.1f s and was cut there; %s", frames / frame_rate, advice)
