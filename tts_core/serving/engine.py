"""Speak the requests of many callers in one thread, with continuous batching.

The thread loads models, warms them up and speaks: streams of MLX belong to a thread, and kernels of two
models never run at once. Between two steps of the batches it drops what was cancelled, passes on text that
arrived, and lets requests join, in the order of the queue and as far as places and the memory plan allow.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tts_core.errors import (
    BusyError,
    CancelledError,
    FieldError,
    GenerationError,
    NotFoundError,
    ResourceError,
    SpeechError,
    UsageError,
    comes_late,
    did_you_mean,
    explain,
    shortage,
)
from tts_core.pipeline import PromptLike
from tts_core.printable import counted
from tts_core.serving.session import Event, Failed
from tts_core.serving.shelf import LoadedModel, Shelf
from tts_core.serving.source import ModelSource
from tts_core.serving.speech import Speech
from tts_core.serving.statistics import Ended, Statistics

_LOG = logging.getLogger("tts_core")
GUESS = 5.0  # seconds that a request takes, before any was measured
RECENT = 0.1  # weight of a request in the mean of those seconds
_TASKS = "/proc/self/task"  # the system's threads by their numbers, on Linux
_LONGEST = 5.0  # seconds that a thread may take to leave the process
_UNLISTED = 0.2  # seconds to wait where the system does not list its threads
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})


class SpeechEngine:
    """Models, a queue, and the thread that speaks.

    models: by the name that callers use.
    max_queue: requests that wait, at most.
    places: requests of one model that are spoken at once, at most.
    idle_unload: seconds without a request after which a model is unloaded; None keeps it. A request loads it
    again.
    warm_up: speak once after every load, unheard.
    on_end: called after every request by the thread that speaks, with its times; it must return at once.
    freeze: while models are loaded, let Python's collector of cycles pass over all that was there when they
    were loaded, in the whole process.
    """

    def __init__(
        self,
        models: Mapping[str, ModelSource],
        *,
        max_queue: int = 64,
        places: int = 8,
        idle_unload: float | None = None,
        warm_up: bool = True,
        on_end: Callable[[Ended], None] | None = None,
        freeze: bool = False,
    ):
        if not models or min(max_queue, places) < 1:
            raise UsageError("engine: give one model or more, max_queue >= 1 and places >= 1")
        self.models, self.max_queue, self.places = dict(models), max_queue, places
        self.idle_unload, self.on_end = idle_unload, on_end
        self.error: Exception | None = None  # of loading at the start
        self._shelf = Shelf(self.models, places=places, warm_up=warm_up, freeze=freeze)
        self._queue: deque[Speech] = deque()
        self._changed = threading.Condition()
        self._news = False  # since the last turn: a submit, a cancel, fed text, or close
        self._ready = threading.Event()
        self._deadline: float | None = None  # set by close
        self._thread = threading.Thread(target=self._run, name="speech-engine", daemon=True)
        self._counted, self._seconds = Statistics(), GUESS
        self._outcomes: Counter[str] = Counter()
        self._steps = self._ids = 0
        self._audio_seconds = 0.0

    def start(self) -> None:
        """Start the thread. It loads every model once, the first last, and warms it up; see `wait_ready`."""
        self._thread.start()

    @property
    def ready(self) -> bool:
        """True from the end of the warm-up until `close`."""
        return self._ready.is_set() and self._deadline is None

    def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait for the end of the warm-up; return `ready`. Raises the error of a model that does not load."""
        self._ready.wait(timeout)
        if self.error is not None:
            raise self.error
        return self.ready

    def submit(
        self,
        model: str,
        text: str,
        *,
        options: Mapping[str, Any] = NO_CHANGES,
        prompt: PromptLike = None,
        more: bool = False,
        ahead: float | None = None,
        longest: float = math.inf,
        on_part: Callable[[Speech], None] | None = None,
    ) -> Speech:
        """Queue a text; its speech begins as soon as a place is free.

        model: a name of `models`.
        options: changes of the model's options, by name.
        prompt: reference speech.
        more: the text goes on, with `Speech.feed`. A source that is not `fed` speaks each text as a piece of
        its own, so give whole sentences.
        ahead, on_part: see Speech.
        longest: expected seconds of a complete text; one of more is refused.
        Raises, before anything is queued: NotFoundError for an unknown model, UsageError for a text, option
        or prompt that cannot be used, BusyError for a full queue, ResourceError while closing.
        """
        source = self.models.get(model)
        if source is None:
            hint = did_you_mean(model, self.models) or f"there is {', '.join(self.models)}"
            raise NotFoundError(f"model: {model} is not served; {hint}")
        self._check_queue()
        ask = source.live if more else source.request
        request = ask(text, options, prompt)
        if longest < math.inf and not more and request.seconds > longest:
            reason = f"about {request.seconds:.1f} s of speech, and at most {longest:g} s are spoken"
            raise FieldError("text", f"{reason}; send less text")
        speech = Speech(model, request, more=more, on_part=on_part, wake=self._wake, ahead=ahead)
        with self._changed:
            self._check_queue()
            self._queue.append(speech)
            self._notice()
        return speech

    def statistics(self) -> Statistics:
        """Return the figures of this moment."""
        with self._changed:
            return replace(self._counted, queued=len(self._queue))

    def close(self, drain_seconds: float = 0.0) -> None:
        """Take no more requests, finish pending ones within `drain_seconds`, cancel the rest, and free all.

        Waits for the thread, which ends after the step under way.
        """
        with self._changed:
            self._deadline = time.perf_counter() + drain_seconds
            self._notice()
        if self._thread.ident is not None:
            self._thread.join()
            wait_for_system(self._thread)

    def _check_queue(self) -> None:
        if self._deadline is not None:
            raise ResourceError("engine: closing; no new requests are taken")
        waiting = len(self._queue)
        if waiting >= self.max_queue:
            after = max(1.0, self._seconds * waiting / self.places)
            raise BusyError(
                f"queue: full, {counted(waiting, 'request')} in it; try again in {after:.0f} s", after
            )

    def _wake(self) -> None:
        with self._changed:
            self._notice()

    def _notice(self) -> None:
        self._news = True
        self._changed.notify_all()

    # From here on: the thread that speaks.

    def _run(self) -> None:
        try:
            self._load_all()
            self._count()
            self._ready.set()
            while self.error is None and self._go_on():
                self._cycle()
        except Exception as error:
            _LOG.exception("serving: the engine stops")
            self.error = _expected(error)
        finally:
            self._deadline = self._deadline or time.perf_counter()
            self._end_all(CancelledError("generation: cancelled; the engine is closed"))
            self._shelf.close()
            self._ready.set()

    def _load_all(self) -> None:
        try:
            for name in reversed(self.models):
                if self._deadline is None:
                    self._shelf.open(name)
        except Exception as error:
            _LOG.exception("serving: a model does not load")
            self.error = _expected(error)

    def _go_on(self) -> bool:
        """Wait until there is something to do. Returns False once all is done after `close`."""
        busy = any(not loaded.session.waiting for loaded in self._shelf)
        with self._changed:
            if not (self._news or busy):
                self._changed.wait(self._patience())
            self._news = False
            if self._deadline is None:
                return True
            left = self._queue or any(loaded.session.running for loaded in self._shelf)
            return bool(left) and time.perf_counter() < self._deadline

    def _patience(self) -> float | None:
        """Seconds until something is due by itself: the deadline of `close`, or a model's unloading."""
        now, due = time.perf_counter(), []
        if self._deadline is not None:
            due.append(self._deadline)
        if self.idle_unload is not None:
            due += [loaded.used + self.idle_unload for loaded in self._shelf if not loaded.session.running]
        return max(0.0, min(due) - now) if due else None

    def _cycle(self) -> None:
        """Drop, feed and admit requests, then run one step of every batch."""
        for loaded in self._shelf:
            self._update(loaded)
        self._admit()
        for loaded in self._shelf:
            if not loaded.session.waiting:
                self._step(loaded)
        if self.idle_unload is not None:
            self._shelf.unload_idle(self.idle_unload)
        self._count()

    def _update(self, loaded: LoadedModel) -> None:
        """Drop cancelled requests and pass on fed text."""
        for key, speech in [*loaded.speeches.items()]:
            if key not in loaded.speeches:
                continue  # its batch failed when another was fed
            if speech.cancelled.is_set():
                self._drop(loaded, key, CancelledError("generation: cancelled"))
            elif speech.more:
                self._feed(loaded, key, speech)

    def _feed(self, loaded: LoadedModel, key: int, speech: Speech) -> None:
        try:
            if not loaded.session.wants(key):
                return
            for text in speech.take_texts():
                if text is None:
                    loaded.session.end(key)
                else:
                    loaded.session.feed(key, text)
            self._news |= speech.has_texts
        except Exception as error:
            if isinstance(error, SpeechError) or not (comes_late(error) or shortage(error)):
                self._drop(loaded, key, error)
            else:
                self._break(loaded, error)

    def _admit(self) -> None:
        """Let queued requests join. None overtakes another of its model, or one whose model must be loaded:
        that waits until nobody speaks, for a load stops every step and counts on all memory that is free.
        """
        with self._changed:
            queued = [*self._queue]
        full: set[str] = set()
        for speech in queued:
            if speech.cancelled.is_set():
                self._dequeue(speech, CancelledError("generation: cancelled"))
                continue
            if speech.model in full:
                continue
            try:
                loaded = self._shelf.get(speech.model)
                if loaded is None:
                    if any(other.session.running for other in self._shelf):
                        return
                    loaded = self._shelf.open(speech.model)
                promised = sum(other.session.promised for other in self._shelf if other is not loaded)
                if not loaded.session.fits(speech.request, promised=promised):
                    full.add(speech.model)
                    continue
                key = loaded.session.join(speech.request, more=speech.more, cancel=speech.cancelled)
            except Exception as error:
                self._dequeue(speech, error)
                continue
            self._dequeue(speech)
            speech.begin()
            loaded.speeches[key] = speech
            if speech.more:
                self._feed(loaded, key, speech)

    def _break(self, loaded: LoadedModel, error: Exception) -> None:
        """End all requests of a batch that ran with an error, and open the next batch, for which one that had
        not begun waits again, once.
        """
        _LOG.error("serving: a batch of %s failed", loaded.name, exc_info=error)
        again = deque[Speech]()
        for key, speech in [*loaded.speeches.items()]:
            if speech.more or speech.is_second or loaded.session.begun(key):
                self._end(loaded, key, error)
            else:
                again.append(loaded.speeches.pop(key).again())
        self._shelf.reopen(loaded)
        with self._changed:
            self._queue = again + self._queue
            self._news |= bool(again)

    def _step(self, loaded: LoadedModel) -> None:
        """Run a step of a model's batch and hand out what it gave."""
        try:
            events = loaded.session.step()
        except Exception as error:
            self._break(loaded, error)
            return
        self._steps += 1
        loaded.used = time.perf_counter()
        for event in events:
            self._hand_out(loaded, event)

    def _hand_out(self, loaded: LoadedModel, event: Event) -> None:
        """Give an event to its request. One that cannot take it fails, and no other."""
        speech = loaded.speeches.get(event.key)
        if speech is None:
            _LOG.error("serving: %s has an event of request %d, which has left", loaded.name, event.key)
        elif isinstance(event, Failed):
            self._end(loaded, event.key, event.error)
        else:
            try:
                speech.give(event.result)
            except Exception as error:
                self._drop(loaded, event.key, error)
                return
            self._news |= speech.has_texts
            if event.result.finish_reason is not None:
                del loaded.speeches[event.key]
                self._record(speech)

    def _dequeue(self, speech: Speech, error: Exception | None = None) -> None:
        with self._changed:
            self._queue.remove(speech)
        if error is not None:
            speech.fail(_expected(error))
            self._record(speech)

    def _drop(self, loaded: LoadedModel, key: int, error: Exception) -> None:
        """Let a request fail and leave its batch. An error of its leaving is the batch's."""
        self._end(loaded, key, error)
        try:
            loaded.session.leave(key)
        except Exception as late:
            self._break(loaded, late)

    def _end(self, loaded: LoadedModel, key: int, error: Exception) -> None:
        speech = loaded.speeches.pop(key)
        speech.fail(_expected(error))
        self._record(speech)

    def _end_all(self, error: Exception) -> None:
        for speech in [*self._queue]:
            self._dequeue(speech, error)
        for loaded in self._shelf:
            for key in [*loaded.speeches]:
                self._end(loaded, key, error)
        self._count()

    def _record(self, speech: Speech) -> None:
        ended, self._news = Ended.of(speech), True  # a place is free
        self._outcomes[ended.outcome] += 1
        self._ids += ended.token_count
        self._audio_seconds += ended.audio_seconds
        if speech.finish_reason is not None and ended.started is not None:
            self._seconds += RECENT * (ended.seconds - ended.started - self._seconds)
        if self.on_end is not None:
            try:
                self.on_end(ended)
            except Exception:
                _LOG.exception("serving: on_end raised")

    def _count(self) -> None:
        loaded = [*self._shelf]
        with self._changed:
            self._counted = Statistics(
                running=sum(model.session.running for model in loaded),
                places=sum(model.session.places for model in loaded),
                loaded=tuple(model.name for model in loaded),
                steps=self._steps,
                ids=self._ids,
                audio_seconds=self._audio_seconds,
                outcomes=dict(self._outcomes),
            )


def wait_for_system(thread: threading.Thread) -> None:
    """Wait until a joined thread has left the process.

    Before Python 3.13 `join` returns earlier. At the very end of a thread MLX frees what it compiled there,
    with Python's lock, and a program that exits meanwhile is aborted.
    """
    if not os.path.isdir(_TASKS):
        time.sleep(_UNLISTED)
        return
    end = time.perf_counter() + _LONGEST
    while os.path.exists(f"{_TASKS}/{thread.native_id}") and time.perf_counter() < end:
        time.sleep(0.001)


def _expected(error: Exception) -> Exception:
    """Turn a bug, or a full memory of the framework, into an error with a line for the caller."""
    if isinstance(error, SpeechError):
        return error
    code, message = explain(error)
    kind = ResourceError if code == ResourceError.exit_code else GenerationError
    made = kind(message)
    made.__cause__ = error
    return made
