"""Calls of networks on a device whose errors may come with a later call.

MLX on Metal raises what stopped a command when its result is read, or with the next call that starts one
(ml-explore/mlx#3523, #4174). What was computed in between may be wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from tts_core.errors import SpeechError, device_error, shortage
from tts_core.nn.host import Host

_LOG = logging.getLogger("tts_core")
_LOCKS: WeakKeyDictionary[Host, AbstractContextManager[object]] = WeakKeyDictionary()
Made = TypeVar("Made")


def apart(host: Host, call: Callable[[], Made]) -> Made:
    """Make a call of a network that changes nothing which other requests use; return its result.

    Raises ResourceError if the call lacks memory or time; an error of earlier calls is raised as it is.
    """
    host.settle()
    try:
        made = call()
        host.settle()
        return made
    except Exception as error:
        lack = shortage(error)
        if lack is None:
            raise
    # Here the error is gone, and with it what its frames kept in memory.
    drop_errors(host)
    raise lack


@contextmanager
def exclusive(host: Host) -> Iterator[None]:
    """Wait until no other thread runs networks on a host, and raise our error in place of a framework's about
    its device.
    """
    with _LOCKS.setdefault(host, threading.RLock()):
        try:
            yield
        except Exception as error:
            found = None if isinstance(error, SpeechError) else device_error(error)
            if found is None:
                raise
            drop_errors(host)
            raise found from error


def drop_errors(host: Host) -> None:
    """Wait for all that was started; its errors do not reach the next call."""
    try:
        host.settle()
    except Exception as error:  # of the work that an error ended already
        _LOG.debug("an error of work under way is dropped: %s", error)
