"""A session for models whose requests cannot share a step: one place, filled by the pipeline's own stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tts_core.errors import SpeechError, UsageError
from tts_core.pipeline import Pipeline
from tts_core.results import GenerationResult
from tts_core.serving.session import Event, Failed, Part


class OneByOne:
    """A session with one place; a step gives the next part of the only request, however long it takes.

    rehearsal: as in Session.
    """

    places = 1
    promised = 0  # memory is checked when a request begins, and its step ends before another model's

    def __init__(self, pipeline: Pipeline, rehearsal: Callable[[], Any]):
        self.pipeline, self.rehearsal = pipeline, rehearsal
        self._joined = 0  # requests so far
        self._key: int | None = None
        self._parts: Iterator[GenerationResult] = iter(())
        self._cancel = threading.Event()

    @property
    def running(self) -> int:
        return int(self._key is not None)

    @property
    def waiting(self) -> bool:
        return self._key is None

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """As in Session. Memory is checked by `join`."""
        return self._key is None

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        if more:
            raise UsageError("text: this model reads its text at once; give all of it")
        assert self._key is None, "asked by `fits` first"
        self._cancel = cancel or threading.Event()
        self._parts = iter(self.pipeline.speak(request, cancel=self._cancel))
        self._joined += 1
        self._key = self._joined
        return self._key

    def feed(self, key: int, text: str) -> None:
        raise UsageError("text: this model reads its text at once")

    def end(self, key: int) -> None:
        """As in Session."""

    def step(self) -> list[Event]:
        key = self._key
        if key is None:
            return []
        try:
            result = next(self._parts)
        except SpeechError as error:
            self.close()
            return [Failed(key, error)]
        if result.is_final_chunk:
            self.close()
        return [Part(key, result)]

    def prepare(self) -> None:
        """As in Session."""

    def leave(self, key: int) -> None:
        if key == self._key:
            self.close()

    def close(self) -> None:
        self._key, self._parts = None, iter(())
