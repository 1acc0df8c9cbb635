"""The part of a session that models with slots share: keys, admission, and requests that end."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tts_core.errors import UsageError, own_error
from tts_core.memory.fits import check
from tts_core.nn.calls import drop_errors
from tts_core.nn.host import Host
from tts_core.serving.session import Event, Failed, Session
from tts_core.serving.turns import Slots, Turns
from tts_core.speaking.windows import Sounding


@dataclass(eq=False)
class Member:
    """A request that has joined. bytes: that it needs at its peak, besides the batch's own."""

    key: int
    bytes: int
    cancel: threading.Event


One = TypeVar("One", bound=Member)


class SlotSession(Session, Generic[One]):
    """A session of `places` places over the slots of a network, which it owns. Texts are given whole; in
    FedSession also in pieces.

    sounding: decodes what the network's steps complete.
    """

    def __init__(self, slots: Slots, places: int, host: Host, sounding: Sounding[Any, Any]):
        self._places, self.host, self.sounding = places, host, sounding
        self.turns: Turns[One] = Turns(slots, places)
        self.members: dict[int, One] = {}
        self._joined = 0  # requests so far

    @abstractmethod
    def needed(self, request: Any) -> int:
        """Estimate the bytes of a request at its peak, besides the batch's own."""

    @abstractmethod
    def begin(self, request: Any, member: Member) -> One:
        """Let a request take a slot. Raises SpeechError, and takes none, if it cannot begin."""

    @property
    def places(self) -> int:
        return self._places

    @property
    def running(self) -> int:
        return len(self.members)

    @property
    def waiting(self) -> bool:
        return not self.members

    @property
    def promised(self) -> int:
        """Bytes of the largest request: they reach their peaks one after the other."""
        return max((one.bytes for one in self.members.values()), default=0)

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        needed = self.needed(request)
        self.check_memory(needed)
        return self.running < self.places and self.host.machine().fits(needed + promised)

    def check_memory(self, needed: int) -> None:
        """Raise ResourceError unless a request's stages fit in the free memory. needed: bytes."""
        check("a request's stages", needed, self.host.machine())

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        if more:
            raise UsageError("text: this model reads its text at once; give all of it")
        member = Member(self._joined + 1, self.needed(request), cancel or threading.Event())
        self.members[member.key] = self.begin(request, member)
        self._joined = member.key
        return member.key

    def feed(self, key: int, text: str) -> None:
        raise UsageError("text: this model reads its text at once")

    def end(self, key: int) -> None: ...

    def leave(self, key: int) -> None:
        one = self.members.pop(key, None)
        if one is not None:
            self.turns.end(one)

    def fail(self, one: One, error: Exception) -> Failed:
        """Drop a request that cannot be finished."""
        self.leave(one.key)
        return Failed(one.key, error)

    def give_out(
        self,
        ended: Iterable[tuple[tuple[One, Any], Any]],
        give: Callable[[One, Any, Any], Sequence[Event]],
    ) -> list[Event]:
        """Turn what is decoded into events; later windows of a request that has left are dropped.

        ended: of `Sounding.ended`, windows of requests with their sounds or errors.
        give: turns a request, its window and its sound into events.
        """
        events: list[Event] = []
        for (one, window), sound in ended:
            if one.key not in self.members:
                continue
            if isinstance(sound, Exception):
                events.append(self.fail(one, sound))
            else:
                events += self.attempt(one, partial(give, one, window, sound))
        return events

    def attempt(self, one: One, work: Callable[[], Sequence[Event] | None]) -> Sequence[Event]:
        """Do work of one request only, and return its events. An error of it ends that request.

        An error that may belong to the batch's steps is raised.
        """
        try:
            return work() or ()
        except Exception as error:
            found = own_error(error)
            return [self.fail(one, found)]

    def close(self) -> None:
        for key in [*self.members]:
            self.leave(key)
        self.sounding.close()
        del self.turns
        drop_errors(self.host)
