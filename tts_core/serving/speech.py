"""A caller's end of a request: the parts of its speech as they arrive, from any thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

from tts_core.errors import CancelledError, UsageError
from tts_core.results import FinishReason, GenerationResult

_LOG = logging.getLogger("tts_core")
State = Literal["queued", "speaking", "ended"]


class Speech:
    """One request, queued or spoken. Built by `SpeechEngine.submit`.

    model: its name in the engine.
    more: its text goes on, with `feed` and `end`.
    on_part: called with the speech after every part and once more after the end, by the thread that speaks;
    it must return at once, such as `lambda speech: loop.call_soon_threadsafe(event.set)`.
    wake: called after a change by the caller.
    ahead: seconds of sound that nobody has taken, beyond which no further text is read; None reads all.
    """

    def __init__(
        self,
        model: str,
        request: Any,
        *,
        more: bool,
        on_part: Callable[[Speech], None] | None,
        wake: Callable[[], None],
        ahead: float | None = None,
    ):
        self.model, self.request, self.more = model, request, more
        self._complete = not more
        self.submitted = time.perf_counter()
        self.started: float | None = None  # seconds of the same clock, as `submitted`
        self.first_audio: float | None = None
        self.ended: float | None = None
        self.seed: int | None = None  # known with the first part
        self.finish_reason: FinishReason | None = None
        self.error: Exception | None = None
        self.is_second = False  # it joins another time
        self.cancelled = threading.Event()
        self.samples = self.token_count = self.sample_rate = self._taken = 0
        self._ahead = ahead
        self._on_part, self._wake = on_part, wake
        self._changed = threading.Condition()
        self._parts: deque[GenerationResult] = deque()
        self._texts: deque[str | None] = deque()  # fed and not yet read; None is the end

    @property
    def state(self) -> State:
        """Return the request's stage."""
        if self.ended is not None:
            return "ended"
        return "queued" if self.started is None else "speaking"

    def get(self, timeout: float | None = None) -> GenerationResult | None:
        """Return the next part; None after the last. Waits for it.

        timeout: seconds; 0 does not wait. Raises TimeoutError after that, and the request's error once the
        parts before it are read: CancelledError, GenerationError, ResourceError.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._parts or self.ended is not None, timeout):
                raise TimeoutError("speech: no part yet")
            if self._parts:
                part = self._parts.popleft()
                was_behind = self._is_behind
                self._taken += part.samples
                if was_behind and not self._is_behind:
                    self._wake()
                return part
            if self.error is not None:
                raise self.error
            return None

    def __iter__(self) -> Iterator[GenerationResult]:
        """Yield all parts; errors as in `get`."""
        while (part := self.get()) is not None:
            yield part

    def cancel(self) -> None:
        """Drop the request; its place is free before the next step. After the end it does nothing."""
        self.cancelled.set()
        self._wake()

    def feed(self, text: str) -> None:
        """Append text to a request that was submitted with `more`.

        A text that cannot be read ends the speech with UsageError. Raises UsageError after `end`, and for a
        request whose text was complete.
        """
        if self._complete:
            raise UsageError("text: this request is complete; submit it with more=True to feed it")
        self._texts.append(text)
        self._wake()

    def end(self) -> None:
        """Say that the text is complete. A second time does nothing."""
        if not self._complete:
            self._complete = True
            self._texts.append(None)
            self._wake()

    @property
    def has_texts(self) -> bool:
        """For the thread that speaks: True if `take_texts` has any."""
        return bool(self._texts) and not self._is_behind

    def take_texts(self) -> list[str | None]:
        """For the thread that speaks: text fed since this was last asked; None is its end. One at a time, and
        none while the listener is behind, where `ahead` is given.
        """
        texts: list[str | None] = []
        while self.has_texts and not (texts and self._ahead is not None):
            texts.append(self._texts.popleft())
        return texts

    @property
    def _is_behind(self) -> bool:
        untaken = self.samples - self._taken
        return self._ahead is not None and untaken > self._ahead * self.sample_rate

    def begin(self) -> None:
        """For the thread that speaks: the request has joined a batch."""
        self.started = time.perf_counter()

    def again(self) -> Speech:
        """For the thread that speaks: queue the request again, for its batch ended before it had begun."""
        self.started, self.is_second = None, True
        return self

    def give(self, part: GenerationResult) -> None:
        """For the thread that speaks: the next part. The one with a finish_reason ends the speech."""
        now = time.perf_counter()
        if part.samples and self.first_audio is None:
            self.first_audio = now
        self.samples, self.sample_rate = self.samples + part.samples, part.sample_rate
        self.seed, self.token_count = part.seed, part.token_count
        with self._changed:
            self._parts.append(part)
            if part.finish_reason is not None:
                self.finish_reason, self.ended = part.finish_reason, now
            self._changed.notify_all()
        self._tell()

    def fail(self, error: Exception) -> None:
        """For the thread that speaks: end the speech with an error."""
        with self._changed:
            self.error, self.ended = error, time.perf_counter()
            if isinstance(error, CancelledError):
                self._parts.clear()
            self._changed.notify_all()
        self._tell()

    def _tell(self) -> None:
        if self._on_part is None:
            return
        try:
            self._on_part(self)
        except Exception:  # a caller's loop that is closed must not end everybody's speech
            _LOG.exception("serving: on_part raised; its request is cancelled")
            self._on_part = None
            self.cancelled.set()
