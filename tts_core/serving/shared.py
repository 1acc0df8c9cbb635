"""Calls of a network that several requests share, where the memory may not be enough for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from tts_core.errors import GenerationError, SpeechError, shortage
from tts_core.nn.calls import drop_errors
from tts_core.nn.host import Host

_LOG = logging.getLogger("tts_core")
One = TypeVar("One")
Made = TypeVar("Made")


def shared(
    host: Host, call: Callable[[Sequence[One]], Sequence[Made]], ones: Sequence[One]
) -> list[Made | SpeechError]:
    """Make a call for several. If it lacks memory or time for all, or gives no sound, make it for each half,
    down to one by one.

    Returns the result of each, or the error of one that cannot be done by itself. Raises any other error, and
    that of an earlier call.
    call: changes nothing if it raises; GenerationError is for sound that is wrong.
    """
    host.settle()
    return _halved(host, call, ones)


def _halved(
    host: Host, call: Callable[[Sequence[One]], Sequence[Made]], ones: Sequence[One]
) -> list[Made | SpeechError]:
    try:
        made = [*call(ones)]
        host.settle()
        return [*made]
    except Exception as error:
        fault = GenerationError(str(error)) if isinstance(error, GenerationError) else shortage(error)
        if fault is None:
            raise
    # Here the error is gone, and with it what its frames kept in memory.
    drop_errors(host)
    if len(ones) == 1:
        return [fault]
    _LOG.warning("a call of %d requests failed (%s); trying again with half of them", len(ones), fault)
    half = len(ones) // 2
    return [*_halved(host, call, ones[:half]), *_halved(host, call, ones[half:])]
