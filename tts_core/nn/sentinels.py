"""Numbers below all ids, in place of one."""

from __future__ import annotations

from enum import IntEnum


class Sentinel(IntEnum):
    """Numbers that stand in place of an id; those of one number never meet in one array.

    MARK: an id that was drawn from NaN or infinite logits.
    WAITED: a text's first id in a step in which it took no part.
    FREE: an id that the model fills.
    EMPTY: a place of the last ids of a text.
    NO_ID, SPEAKER, FRAME: in Qwen3-TTS's inputs, no id, the vector of a recording, a frame of it.
    """

    MARK = -1
    FREE = -1
    EMPTY = -1
    NO_ID = -1
    WAITED = -2
    SPEAKER = -2
    FRAME = -3
