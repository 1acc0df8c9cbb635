"""Text that arrives while it is spoken, for models that read a text at once: each piece joins the running
batch when the one before has left it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tts_core.errors import own_error
from tts_core.live.chain import Chain
from tts_core.serving.session import Event, Failed, Part, Session


@dataclass(frozen=True, eq=False)
class LiveRequest:
    """A request whose text goes on. first: the request of its first piece, from its chain."""

    chain: Chain
    first: Any


@dataclass(eq=False)
class _Live:
    """A live request that has joined.

    texts: still to speak.
    next: the request of the first of them, once it is built.
    is_speaking: a piece is in the batch.
    is_open: more text may come.
    """

    chain: Chain
    cancel: threading.Event | None
    is_open: bool
    texts: deque[str] = field(default_factory=deque)
    next: Any = None
    is_speaking: bool = True

    @property
    def is_due(self) -> bool:
        """True if a piece waits for a place."""
        return not self.is_speaking and (self.next is not None or bool(self.texts))

    @property
    def is_done(self) -> bool:
        """True if all is spoken."""
        return not (self.is_speaking or self.is_due or self.is_open)


class LiveSession(Session):
    """A session around another, which also takes live requests.

    A live request whose next text has not arrived holds no place of the batch; when it arrives, it joins
    before all that are queued.
    """

    def __init__(self, session: Session):
        self.session = session
        self._keys: dict[int, int] = {}  # key of a piece in the inner session → that of its first one
        self._lives: dict[int, _Live] = {}

    @property
    def places(self) -> int:
        return self.session.places

    @property
    def running(self) -> int:
        """Number of requests, with live ones that wait for their text."""
        return self.session.running + sum(not live.is_speaking for live in self._lives.values())

    @property
    def waiting(self) -> bool:
        return self.session.waiting and not any(live.is_due or live.is_done for live in self._lives.values())

    @property
    def promised(self) -> int:
        return self.session.promised

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        if any(live.is_due for live in self._lives.values()):
            return False
        asked = request.first if isinstance(request, LiveRequest) else request
        return self.session.fits(asked, promised=promised)

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        """Let a request join; `more` with a LiveRequest only."""
        asked = request.first if isinstance(request, LiveRequest) else request
        key = self.session.join(asked, cancel=cancel)
        self._keys[key] = key
        if isinstance(request, LiveRequest):
            self._lives[key] = _Live(request.chain, cancel, more)
        return key

    def wants(self, key: int) -> bool:
        """Return True once a request has spoken all of its text."""
        live = self._lives[key]
        return not (live.is_speaking or live.is_due)

    def feed(self, key: int, text: str) -> None:
        """Add text. One that cannot be spoken ends the request when its turn comes."""
        self._lives[key].texts.append(text)

    def end(self, key: int) -> None:
        if key in self._lives:
            self._lives[key].is_open = False

    def step(self) -> list[Event]:
        events: list[Event] = []
        for key, live in [*self._lives.items()]:
            events += self._attempt(key, partial(self._go_on, key, live))
        if not self.session.waiting:
            for event in self.session.step():
                key = self._keys.get(event.key)
                if key is not None:  # it may have left with a part before, of the same step
                    events += self._attempt(key, partial(self._ours, key, event))
        return events

    def leave(self, key: int) -> None:
        self._lives.pop(key, None)
        for inner in [inner for inner, first in self._keys.items() if first == key]:
            del self._keys[inner]
            self.session.leave(inner)

    def prepare(self) -> None:
        self.session.prepare()

    def rehearsal(self) -> Any:
        return self.session.rehearsal()

    def close(self) -> None:
        self._keys.clear()
        self._lives.clear()
        self.session.close()

    def _attempt(self, key: int, work: Callable[[], list[Event]]) -> list[Event]:
        """Do work of one request only, which alone fails by its error."""
        try:
            return work()
        except Exception as error:
            found = own_error(error)
            self.leave(key)
            return [Failed(key, found)]

    def _go_on(self, key: int, live: _Live) -> list[Event]:
        """Let the next piece of a live request join, if there is one and a place for it."""
        if not live.is_speaking:
            while live.next is None and live.texts:
                live.next = live.chain.next(live.texts.popleft())
            if live.next is not None and self.session.fits(live.next):
                self._keys[self.session.join(live.next, cancel=live.cancel)] = key
                live.next, live.is_speaking = None, True
        return [self._finish(key, live)] if live.is_done else []

    def _ours(self, key: int, event: Event) -> list[Event]:
        """Turn an event of the inner session into ours."""
        live = self._lives.get(key)
        if isinstance(event, Failed):
            self.leave(key)
            return [Failed(key, event.error)]
        is_last = event.result.finish_reason is not None
        if is_last:
            del self._keys[event.key]
        if live is None:
            return [event]
        live.is_speaking = not is_last
        part = Part(key, live.chain.part(event.result))
        return [part, self._finish(key, live)] if live.chain.is_full or live.is_done else [part]

    def _finish(self, key: int, live: _Live) -> Part:
        self.leave(key)
        return Part(key, live.chain.finish())
