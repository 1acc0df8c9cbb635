"""Requests through a session of their own: one whose parts are heard as they come, or several at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol

from tts_core.nn.guard import NotFiniteError
from tts_core.pipeline import Callbacks
from tts_core.printable import counted
from tts_core.results import GenerationResult, join
from tts_core.serving.session import Event, Failed, Part, Session

_LOG = logging.getLogger("tts_core")


class Line(Protocol):
    """A text on its way through a session: one request, or pieces that are requests of their own."""

    @property
    def done(self) -> bool:
        """True once nothing is left to speak."""
        ...

    def ready(self, running: Collection[int]) -> Iterable[int]:
        """List the pieces that can begin. running: those under way."""
        ...

    def request(self, place: int) -> Any:
        """Build the request of a piece that is ready."""
        ...

    def add(self, place: int, result: GenerationResult) -> None:
        """Store the speech of a whole piece."""
        ...

    def result(self) -> GenerationResult:
        """Return the speech of all, once it is done."""
        ...


class Single(Line):
    """The line of a text that is one request."""

    def __init__(self, request: Any):
        self._request, self._spoken = request, None

    @property
    def done(self) -> bool:
        return self._spoken is not None

    def ready(self, running: Collection[int]) -> Iterable[int]:
        return () if running else (0,)

    def request(self, place: int) -> Any:
        return self._request

    def add(self, place: int, result: GenerationResult) -> None:
        self._spoken: GenerationResult | None = result

    def result(self) -> GenerationResult:
        assert self._spoken is not None
        return self._spoken


def streamed(
    session: Session, request: Any, watch: Callbacks, expected: float, pieces: Iterator[str] | None = None
) -> Iterator[GenerationResult]:
    """Yield the parts of one request, and close its session.

    expected: seconds of speech, about.  pieces: of its text, which goes on; the next one is awaited when all
    of it is spoken. Raises the error of a request that failed, and CancelledError.
    """
    with closing(session):
        watch.tell("prompt", 0, expected)
        key, made = session.join(request, more=pieces is not None), 0.0
        watch.tell("speech", 0, expected)
        while session.running:
            watch.check()
            while pieces is not None and session.waiting:
                piece = next(pieces, None)
                if piece is None:
                    session.end(key)
                else:
                    session.feed(key, piece)
            for part in given(session.step()):
                made += part.result.audio_seconds
                watch.tell("speech", made, expected)
                yield part.result


def log(model: str, request: Any) -> None:
    """Log what will be spoken. model: its name.  request: of the model."""
    if not request.pieces:
        _LOG.info("%s: text as it comes", model)
    else:
        _LOG.info(
            "%s: %s, about %.1f s of speech", model, counted(len(request.pieces), "piece"), request.seconds
        )


def together(
    session: Callable[[int], Session], lines: Sequence[Line], watch: Callbacks, expected: float
) -> list[GenerationResult]:
    """Speak lines to their ends, as many of their pieces at once as fit; return the speech of each.

    session: opens one for at most so many pieces; another one follows when all are spoken and more, or fewer,
    are ready.  expected: seconds of speech, about.
    Raises the error of a request that failed, and CancelledError.
    """
    made = 0.0
    watch.tell("prompt", 0, expected)
    while ready := _ready(lines, ()):
        with closing(session(len(ready))) as opened:
            running = dict[int, tuple[int, int]]()  # key → line and piece
            parts = dict[int, list[GenerationResult]]()
            while running or len(ready) == len(_ready(lines, ())):
                for line, place in _ready(lines, running.values()):
                    one = lines[line].request(place)
                    if not opened.fits(one):
                        break
                    key = opened.join(one)
                    running[key], parts[key] = (line, place), []
                if not made:
                    watch.tell("speech", 0, expected)
                ended = 0
                while not ended:
                    watch.check()
                    for part in opened.step():
                        if isinstance(part, Failed):
                            error, (line, _) = part.error, running[part.key]
                            raise error.of(line + 1) if isinstance(error, NotFiniteError) else error
                        made += part.result.audio_seconds
                        watch.tell("speech", made, expected)
                        parts[part.key].append(part.result)
                        if part.result.is_final_chunk:
                            line, place = running.pop(part.key)
                            lines[line].add(place, join(parts.pop(part.key)))
                            ended += 1
    return [line.result() for line in lines]


def _ready(lines: Sequence[Line], running: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """List the pieces that can begin: line and piece, in order."""
    under_way: dict[int, list[int]] = {}
    for line, place in running:
        under_way.setdefault(line, []).append(place)
    return [
        (number, place)
        for number, line in enumerate(lines)
        if not line.done
        for place in line.ready(under_way.get(number, ()))
    ]


def given(events: Sequence[Event]) -> Iterator[Part]:
    """Yield parts of speech. Raises the error of a request that failed."""
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        yield event
