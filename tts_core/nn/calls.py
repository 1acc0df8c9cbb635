"""Calls of networks on a device whose errors may come with a later call.

MLX on Metal raises what stopped a command when its result is read, or with the next call that starts one
(ml-explore/mlx#3523, #4174). What was computed in between may be wrong.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from tts_core.errors import SpeechError, device_error, shortage
from tts_core.nn.host import Host


class HasEngine(Protocol):
    """A pipeline with an engine, whose networks run on a host."""

    engine: Any


_LOG = logging.getLogger("tts_core")
_LOCKS: WeakKeyDictionary[Host, AbstractContextManager[object]] = WeakKeyDictionary()
Made = TypeVar("Made")
Owner = TypeVar("Owner", bound=HasEngine)
Given = ParamSpec("Given")


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


def exclusive(
    method: Callable[Concatenate[Owner, Given], Made],
) -> Callable[Concatenate[Owner, Given], Made]:
    """Let a pipeline's method wait until no other thread runs its networks, and raise our error in place of a
    framework's about its device.
    """

    @wraps(method)
    def call(self: Owner, *args: Given.args, **kwargs: Given.kwargs) -> Made:
        with _exclusive(self.engine.host):
            return method(self, *args, **kwargs)

    return call


def exclusive_parts(
    method: Callable[Concatenate[Owner, Given], Iterator[Made]],
) -> Callable[Concatenate[Owner, Given], Iterator[Made]]:
    """As `exclusive`, for a generator: other threads wait until a part, never None, is complete."""

    @wraps(method)
    def call(self: Owner, *args: Given.args, **kwargs: Given.kwargs) -> Iterator[Made]:
        with closing(cast("Generator[Made]", method(self, *args, **kwargs))) as parts:
            while True:
                with _exclusive(self.engine.host):  # not while the caller uses a part
                    part = next(parts, None)
                if part is None:
                    return
                yield part

    return call


@contextmanager
def _exclusive(host: Host) -> Iterator[None]:
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
