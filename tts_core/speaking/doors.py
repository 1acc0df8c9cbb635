"""Requests through a session of their own, and text as a caller gives it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

from tts_core.errors import CancelledError, UsageError
from tts_core.nn.guard import NotFiniteError
from tts_core.pipeline import Callbacks
from tts_core.printable import counted
from tts_core.results import GenerationResult
from tts_core.serving.session import Failed
from tts_core.speaking.session import SpeechSession
from tts_core.text.arriving import Sentences
from tts_core.text.checks import check_words

_LOG = logging.getLogger("tts_core")


def spoken(
    session: SpeechSession,
    requests: Sequence[Any],
    report: Callbacks,
    text: Iterator[str] | None = None,
) -> Generator[tuple[int, GenerationResult], None, None]:
    """Speak requests, each as soon as it fits, and close their session. Yields parts, each with the place of
    its request.

    text: of the only request, which goes on; the next of it is awaited when all is spoken.
    Raises the error of a request that failed, and CancelledError.
    """
    indices, waiting = dict[int, int](), deque(enumerate(requests))
    with closing(session):
        if not session.net.stages:
            report.tell("prompt")
        while waiting or session.running:
            while waiting and (not session.running or session.fits(waiting[0][1])):
                index, request = waiting.popleft()
                indices[session.join(request, more=text is not None)] = index
            report.check_cancel()
            while text is not None and session.waiting:
                [key], more = indices, next(text, None)
                if more is None:
                    session.end(key)
                else:
                    session.feed(key, more)
            for event in session.step():
                index = indices[event.key]
                if isinstance(event, Failed):
                    error = event.error
                    raise error.of(index + 1) if isinstance(error, NotFiniteError) else error
                yield index, event.result


def log(model: str, request: Any) -> None:
    """Log what will be spoken. model: its name.  request: of the model."""
    if not request.pieces:
        _LOG.info("%s: text as it comes", model)
    else:
        _LOG.info(
            "%s: %s, about %.1f s of speech", model, counted(len(request.pieces), "piece"), request.seconds
        )


def checked_fragments(fragments: Iterable[str]) -> Iterator[str]:
    """Return the pieces of a text as they come. Raises UsageError for another value, and for such a piece."""
    if isinstance(fragments, bytes) or not isinstance(fragments, Iterable):
        raise UsageError(f"text: {fragments!r:.40} is neither text nor an iterable of text")
    return map(_fragment, fragments)


def _fragment(fragment: object) -> str:
    if not isinstance(fragment, str):
        raise UsageError(f"text: a piece is {fragment!r:.40}, not text")
    return fragment


def sentences(fragments: Iterable[str], cancel: threading.Event | None) -> Iterator[str]:
    """Cut text that comes into sentences. Raises UsageError for no words at all, and CancelledError."""
    cutter, is_empty = Sentences(), True
    for fragment in fragments:
        if cancel is not None and cancel.is_set():
            raise CancelledError("generation: cancelled")
        for sentence in cutter.add(fragment):
            is_empty = False
            yield sentence
    rest = cutter.end()
    if is_empty and not rest:
        check_words("text", "")
    yield from rest
