"""Speak text that arrives in pieces with a pipeline that reads a text at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tts_core.errors import CancelledError, UsageError
from tts_core.live.chain import Chain
from tts_core.live.voices import Voices
from tts_core.pipeline import Pipeline, Progress
from tts_core.results import GenerationResult
from tts_core.text.arriving import Sentences
from tts_core.text.checks import check_words


def stream(
    pipeline: Pipeline,
    fragments: Iterable[str],
    options: Any,
    voices: Voices,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
) -> Iterator[GenerationResult]:
    """Speak sentences as they become complete, as one speech; the next fragment is awaited meanwhile.

    The speech depends on the text only, not on its fragments.
    Raises UsageError at the call for options that pieces cannot share; as the pieces come, the errors of
    `pipeline.stream`, of the iterable, and UsageError for a fragment that is no text, or no words at all.
    """
    fragments = checked_pieces(fragments)
    chain = Chain(pipeline.request, options, voices)
    return _spoken(pipeline, chain, _sentences(fragments, cancel), progress, cancel)


def checked_pieces(fragments: Iterable[str]) -> Iterator[str]:
    """Return the pieces of a text as they come. Raises UsageError for another value, and for such a piece."""
    if isinstance(fragments, bytes) or not isinstance(fragments, Iterable):
        raise UsageError(f"text: {fragments!r:.40} is neither text nor an iterable of text")
    return map(_piece, fragments)


def _piece(fragment: object) -> str:
    if not isinstance(fragment, str):
        raise UsageError(f"text: a piece is {fragment!r:.40}, not text")
    return fragment


def _spoken(
    pipeline: Pipeline,
    chain: Chain,
    sentences: Iterator[str],
    progress: Callable[[Progress], None] | None,
    cancel: threading.Event | None,
) -> Iterator[GenerationResult]:
    for sentence in sentences:
        request = chain.next(sentence)
        if request is None:
            continue
        for part in pipeline.speak(request, progress=progress, cancel=cancel):
            yield chain.part(part)
            if chain.is_full:
                yield chain.finish()
                return
    yield chain.finish()


def _sentences(fragments: Iterable[str], cancel: threading.Event | None) -> Iterator[str]:
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
