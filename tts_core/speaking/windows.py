"""Sounds of a running batch, which the codec decodes beside the steps where the device can do both."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from tts_core.errors import GenerationError, SpeechError, comes_late, shortage
from tts_core.nn.beside import Done, Pending
from tts_core.nn.calls import drop_errors
from tts_core.nn.host import Host

_LOG = logging.getLogger("tts_core")
AT_ONCE = 3  # launches under way: a device has work until the next step, and its queue of kernels has room

Window = TypeVar("Window")
Frames = TypeVar("Frames")
Made = TypeVar("Made")


@dataclass(eq=False)
class _Queued(Generic[Window, Made]):
    """A window. made: its sound or its error, in a list of one, once it is there."""

    window: Window
    made: list[Made | Exception]


class WindowQueue(Generic[Window, Made]):
    """Windows of several requests that are decoded. Those of a request come back in the order in which they
    were added.

    decode: makes the sounds of several, as in `shared`.
    launch: begins the same work beside the steps, or returns None for work that cannot be; None where the
    device has no stream for it.
    choose: of windows that are due, in the order in which they were added, those of the next launch, by their
    places; none if all of them wait for others. Its second argument: nothing else runs. None for all at once.
    owner: the request of a window; by default all windows are of one.
    is_wanted: False for a window whose request has left.
    most: windows that may be due before `ended` waits for the codec; None for any number. Those that are due
    are codes on the host, and take no memory of the device.
    """

    def __init__(
        self,
        host: Host,
        decode: Callable[[Sequence[Window]], Sequence[Made]],
        *,
        launch: Callable[[Sequence[Window]], Pending[Sequence[Made | Exception]] | None] | None = None,
        choose: Callable[[Sequence[Window], bool], Sequence[int]] | None = None,
        owner: Callable[[Window], Hashable] = lambda window: None,
        is_wanted: Callable[[Window], bool] = lambda window: True,
        most: int | None = None,
    ):
        self.host, self.most = host, most
        self._decode, self._launch, self._choose = decode, launch, choose
        self._owner, self._is_wanted = owner, is_wanted
        self._order: deque[_Queued[Window, Made]] = deque()
        self._due: list[_Queued[Window, Made]] = []
        self._begun: deque[tuple[list[_Queued[Window, Made]], Pending[Sequence[Made | Exception]]]] = deque()

    def add(self, windows: Sequence[Window]) -> None:
        """Let windows be decoded."""
        queued = [_Queued[Window, Made](window, []) for window in windows]
        self._order.extend(queued)
        self._due.extend(queued)

    def fail(self, window: Window, error: Exception) -> None:
        """Let an error follow the windows that were added before."""
        self._order.append(_Queued(window, [error]))

    @property
    def is_busy(self) -> bool:
        """True if a window was added that is not given out."""
        return any(self._is_wanted(queued.window) for queued in self._order)

    def ended(self, *, wait: bool) -> list[tuple[Window, Made | Exception]]:
        """Begin windows, and return those that are decoded, each with its sound or its error.

        wait: for one at least, if there is any.
        """
        self._begin(wait)
        ended = self._in_order()
        while self._begun and (self._begun[0][1].ready() or self._is_behind or (wait and not ended)):
            self._take()
            self._begin(wait)
            ended += self._in_order()
        return ended

    def close(self) -> None:
        """Drop what is due, and wait for what has begun."""
        self._due.clear()
        self._order.clear()
        while self._begun:
            try:
                self._begun.popleft()[1].take()
            except Exception as error:  # nobody waits for the sound any more
                _LOG.debug("serving: a sound that nobody waits for failed: %s", error)

    @property
    def _is_behind(self) -> bool:
        return self.most is not None and len(self._due) > self.most

    def _in_order(self) -> list[tuple[Window, Made | Exception]]:
        """Give out the windows of each request before its first one that is not there yet."""
        ended, left, behind = [], deque[_Queued[Window, Made]](), set[Hashable]()
        for queued in self._order:
            owner = self._owner(queued.window)
            if queued.made and owner not in behind:
                ended.append((queued.window, queued.made[0]))
            elif queued.made or self._is_wanted(queued.window):
                behind.add(owner)
                left.append(queued)
        self._order = left
        return ended

    def _begin(self, wait: bool) -> None:
        """Launch what is due. wait: also what could wait for others."""
        self._due = [entry for entry in self._due if self._is_wanted(entry.window)]
        while self._due and len(self._begun) < AT_ONCE:
            windows = [entry.window for entry in self._due]
            indices = range(len(windows)) if self._choose is None else self._choose(windows, wait)
            if not indices:
                return
            queued = [self._due[index] for index in indices]
            self._due = [entry for index, entry in enumerate(self._due) if index not in indices]
            self._begun.append((queued, self._launched([entry.window for entry in queued])))

    def _take(self) -> None:
        """Wait for the oldest launch; if one of its sounds is wrong, decode them again."""
        queued, pending = self._begun.popleft()
        try:
            made = pending.take()
        except GenerationError:
            made = self._decoded([entry.window for entry in queued])
        for entry, window in zip(queued, made, strict=True):
            entry.made.append(window)

    def _launched(self, windows: Sequence[Window]) -> Pending[Sequence[Made | Exception]]:
        """Launch windows. If memory is short, wait for all others, and decode these by themselves."""
        try:
            pending = None if self._launch is None else self._launch(windows)
        except Exception as error:
            if shortage(error) is None or comes_late(error):
                raise
        else:
            return Done(self._decoded(windows)) if pending is None else pending
        # Here the error is gone, and with it what its frames kept in memory.
        drop_errors(self.host)
        while self._begun:
            self._take()
        return Done(self._decoded(windows))

    def _decoded(self, windows: Sequence[Window]) -> Sequence[Made | Exception]:
        """Decode windows now. An error for all of them, such as that of a cancelled call, is each one's."""
        try:
            return shared(self.host, self._decode, windows)
        except SpeechError as error:
            return [error] * len(windows)


class Due(NamedTuple):
    """A window that waits for a call.

    lead: seconds of sound that its listener has left; less than 0 after a gap.
    seconds: of its own.
    is_last: its stream has no window after it, or that waits, too.
    """

    lead: float
    seconds: float
    is_last: bool


def next_call(
    due: Sequence[Due], calls: Sequence[Sequence[int]], most: Sequence[int], *, can_wait: bool
) -> Sequence[int]:
    """Choose one of the calls that windows which are due could share; an empty one lets them wait for others.

    calls: windows by their places.
    most: rows of each call at most.
    can_wait: False if nothing else runs that could join.

    1. What would come late goes first: a window longer than the sound that its listener has left; so does the
       first one of a request. Others wait for windows that may join them. While the listener hears as much
       sound as the window has, every stream of this pace completes a window, and waiting ends by rule 3.
    2. Full calls go before small ones: a call of few rows takes about as long as one of many.
    3. A window waits for no others if its stream ends with it, or has the next one due.
    """
    late = [call for call in calls if any(due[index].lead < due[index].seconds for index in call)]
    if late:
        return min(late, key=lambda call: min(due[index].lead for index in call))
    ripe = [
        call
        for call, rows in zip(calls, most, strict=True)
        if not can_wait or len(call) >= rows or any(due[index].is_last for index in call)
    ]
    return max(ripe, key=len, default=())


def shared(
    host: Host, call: Callable[[Sequence[Window]], Sequence[Made]], windows: Sequence[Window]
) -> list[Made | SpeechError]:
    """Make a call for several. If it is told at once that memory lacks for all, or it gives no sound, make it
    for each half, down to one by one.

    Returns the result of each, or the error of one that cannot be done by itself. Raises any other error, one
    that a device tells late, and that of an earlier call.
    call: changes nothing if it raises; GenerationError is for sound that is wrong.
    """
    host.settle()
    return _halved(host, call, windows)


def _halved(
    host: Host, call: Callable[[Sequence[Window]], Sequence[Made]], windows: Sequence[Window]
) -> list[Made | SpeechError]:
    try:
        made = [*call(windows)]
        host.settle()
        return [*made]
    except Exception as error:
        fault = GenerationError(str(error)) if isinstance(error, GenerationError) else shortage(error)
        if fault is None or comes_late(error):
            raise
    # Here the error is gone, and with it what its frames kept in memory.
    drop_errors(host)
    if len(windows) == 1:
        return [fault]
    _LOG.warning("a call of %d requests failed (%s); trying again with half of them", len(windows), fault)
    half = len(windows) // 2
    return [*_halved(host, call, windows[:half]), *_halved(host, call, windows[half:])]
