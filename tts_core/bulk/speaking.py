"""Speak rows with a model's session: rows join the running batch as places become free."""

from __future__ import annotations

import hashlib
import io
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tts_core.audio.formats.names import SUFFIXES
from tts_core.audio.formats.writer import SoundWriter
from tts_core.bulk.outcome import Outcome
from tts_core.bulk.requests import BulkWork, RowRequests, failed
from tts_core.bulk.rows import TextRow
from tts_core.errors import device_error
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Failed
from tts_core.serving.source import ModelSource

if TYPE_CHECKING:
    from tts_core.speaking.session import SpeechSession

_LOG = logging.getLogger("tts_core")
Made = TypeVar("Made")
THREADS = 2  # that encode sounds while others are spoken


@dataclass(eq=False)
class _RunningRow:
    """A row with its request. is_second: it joins another time."""

    row: TextRow
    key: str
    request: Any
    is_second: bool = False
    parts: list[GenerationResult] = field(default_factory=list)


class RowSpeaker:
    """A loaded model that speaks rows. Their sounds are encoded in threads, beside the next steps.

    open_session: opens a running batch: the first, and another after an error of the device ended one.
    """

    def __init__(self, source: ModelSource, open_session: Callable[[], SpeechSession], work: BulkWork):
        self.source, self.open_session, self.work = source, open_session, work
        self.session = open_session()
        self.requests = RowRequests(source, work)

    def speak(self, rows: Iterable[tuple[TextRow, str]]) -> Iterator[Outcome]:
        """Speak rows with their keys; yield each as it ends. The next is taken once a place is free."""
        for ended in self.steps(rows):
            yield from ended

    def steps(self, rows: Iterable[tuple[TextRow, str] | None]) -> Iterator[list[Outcome]]:
        """Speak rows with their keys; yield the rows that ended after each step, in the order of their end.

        rows: None means that there is none at the moment; those that were taken go on.
        """
        source, more = iter(rows), True
        running: dict[int, _RunningRow] = {}  # by key of the session
        waiting = deque[_RunningRow]()  # for memory, or for the next batch
        ended = InOrder[Outcome](THREADS, self.session.places)
        while more or waiting or running or ended:
            while waiting or (more and self.session.running < self.session.places):
                if waiting:
                    if not self._join(waiting[0], running, ended):
                        break
                    waiting.popleft()
                    continue
                try:
                    pair = next(source)
                except StopIteration:
                    more = False
                    break
                if pair is None:
                    break
                waiting += self._request(*pair, ended)
            if running:
                try:
                    self._step(running, ended)
                except Exception as error:
                    waiting.extendleft(reversed(self._broken(running, ended, error)))
                    if device_error(error) is None:
                        yield ended.ended(wait=True)
                        raise
                    self._reopen()
            yield ended.ended(wait=not running)

    def _request(self, row: TextRow, key: str, ended: InOrder[Outcome]) -> list[_RunningRow]:
        """Build a row's request; a row that cannot be spoken has ended."""
        try:
            return [_RunningRow(row, key, self.requests.request(row))]
        except Exception as error:
            ended.add(failed(row, key, error))
            return []

    def _join(self, row: _RunningRow, running: dict[int, _RunningRow], ended: InOrder[Outcome]) -> bool:
        """Let a request join, or end it if it cannot be spoken; False if no slot is free now."""
        try:
            if not self.session.fits(row.request):
                return False
            running[self.session.join(row.request)] = row
        except Exception as error:
            ended.add(failed(row.row, row.key, error))
        return True

    def _broken(
        self, running: dict[int, _RunningRow], ended: InOrder[Outcome], error: Exception
    ) -> list[_RunningRow]:
        """End all running requests with an error. Returns requests that had not begun, for the next batch."""
        again = list[_RunningRow]()
        for key, speech in running.items():
            if speech.is_second or self.session.begun(key):
                ended.add(failed(speech.row, speech.key, error))
            else:
                speech.is_second = True
                again.append(speech)
        running.clear()
        return again

    def _reopen(self) -> None:
        """Open the next batch."""
        try:
            self.session.close()
        except Exception:  # its memory is freed with the object
            _LOG.warning("batch: the broken session does not close", exc_info=True)
        self.session = self.open_session()

    def _step(self, running: dict[int, _RunningRow], ended: InOrder[Outcome]) -> None:
        for event in self.session.step():
            spoken = running[event.key]
            if isinstance(event, Failed):
                del running[event.key]
                ended.add(failed(spoken.row, spoken.key, event.error))
                continue
            spoken.parts.append(event.result)
            if event.result.finish_reason is not None:
                del running[event.key]
                ended.begin(partial(self._spoken, spoken))

    def _spoken(self, spoken: _RunningRow) -> Outcome:
        row, result = spoken.row, merge(spoken.parts)
        try:
            sound = encoded(result, self.work.suffix)
            cues = result.captions()
            captions = {"srt": cues.srt, "vtt": cues.vtt, None: lambda: None}[self.work.captions]()
        except Exception as error:
            return failed(row, spoken.key, error)
        fields = {
            "duration": round(result.audio_seconds, 6),
            "text": row.text,
            "speaker": row.voice or (Path(row.ref_audio).stem if row.ref_audio else "default"),
            "id": row.id,
            "seed": row.seed,
            **self.work.labels,
            "finish_reason": result.finish_reason,
            "rtf": round(result.real_time_factor, 4),
            "codes_sha256": codes_hash(result.codes),
        }
        return Outcome(row.number, spoken.key, row.id, sound, fields, captions)


class InOrder(Generic[Made]):
    """Results in the order of their start: finished ones, and those of calls in threads.

    most: calls under way before `ended` waits.
    """

    def __init__(self, threads: int, most: int):
        self._threads, self._most = ThreadPoolExecutor(threads), most
        self._results: deque[Future[Made]] = deque()

    def __len__(self) -> int:
        """Count the results that were not returned yet."""
        return len(self._results)

    def add(self, made: Made) -> None:
        """Append a finished result."""
        result = Future[Made]()
        result.set_result(made)
        self._results.append(result)

    def begin(self, call: Callable[[], Made]) -> None:
        """Append the result of a call."""
        self._results.append(self._threads.submit(call))

    def ended(self, *, wait: bool) -> list[Made]:
        """Return the first results, up to an unfinished one. Raises the error of a call.

        wait: for all.
        """
        ended: list[Made] = []
        while self._results and (wait or len(self._results) > self._most or self._results[0].done()):
            ended.append(self._results.popleft().result())
        return ended


def encoded(result: GenerationResult, suffix: str) -> bytes:
    """Encode a sound in the format of a suffix."""
    file = io.BytesIO()
    with SoundWriter(file, SUFFIXES[suffix], result.sample_rate, seekable=True) as writer:
        writer.write(result.audio)
    return file.getvalue()


def codes_hash(codes: np.ndarray) -> str:
    """Hash codes (Q, T), shape included: 64 hex digits."""
    digest = hashlib.sha256(f"{codes.shape} ".encode())
    digest.update(np.ascontiguousarray(codes, "<i4").tobytes())
    return digest.hexdigest()
