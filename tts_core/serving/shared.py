"""Calls of a network that several requests share, where the memory may not be enough for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from tts_core.errors import ResourceError, memory_error

_LOG = logging.getLogger("tts_core")
One = TypeVar("One")
Made = TypeVar("Made")


def shared(
    call: Callable[[Sequence[One]], Sequence[Made]], ones: Sequence[One]
) -> list[Made | ResourceError]:
    """Make a call for several. If memory is too short for all, make it for each half, down to one by one.

    Returns the result of each, or the error of one that lacks memory by itself. Raises any other error.
    call: changes nothing if it raises.
    """
    try:
        return [*call(ones)]
    except Exception as error:
        lack = memory_error(error)
        if lack is None:
            raise
    # Here the error is gone, and with it what its frames kept in memory.
    if len(ones) == 1:
        return [lack]
    _LOG.warning("memory: too little for a call of %d requests; trying again with half of them", len(ones))
    half = len(ones) // 2
    return [*shared(call, ones[:half]), *shared(call, ones[half:])]
