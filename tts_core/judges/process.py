"""Judges in processes of their own: they hear recordings while a model speaks the next ones."""

from __future__ import annotations

import multiprocessing
import signal
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import NamedTuple

from tts_core.errors import GenerationError, SpeechError
from tts_core.judges.judging import Judge, judged
from tts_core.judges.rows import Row

DEATHS = 3  # of processes in a row, without a recording that was judged, that end the run


@dataclass(frozen=True)
class Recording:
    """An encoded sound to judge. key: names it in the verdict.  suffix: of its format, with the dot."""

    key: str
    sound: bytes
    suffix: str
    text: str
    reference: Path | None = None


class Verdict(NamedTuple):
    """The figures of a recording, or the reason why it has none."""

    key: str
    figures: dict[str, float] | None
    error: str | None = None


class JudgeProcesses:
    """Processes that judge a recording each at a time.

    build: makes the judges, in each process.
    """

    def __init__(self, build: Callable[[], Sequence[Judge]], count: int):
        self._build, self._deaths = build, 0
        self._waiting: deque[Recording] = deque()
        self._hands = [_Hand(build) for _ in range(count)]

    @property
    def pending(self) -> int:
        """Recordings without a verdict."""
        return len(self._waiting) + sum(hand.held is not None for hand in self._hands)

    def begin(self, recording: Recording) -> None:
        """Take a recording; its verdict is among the next ones."""
        self._waiting.append(recording)
        self._feed()

    def verdicts(self, patience: float | None) -> list[Verdict]:
        """Collect what has been judged. patience: seconds to wait for the first; None waits for one.

        Raises the SpeechError of a judge that cannot be built, GenerationError if processes keep dying.
        """
        ready = wait([hand.pipe for hand in self._hands if hand.held is not None], patience)
        found = [self._verdict(hand) for hand in list(self._hands) if hand.pipe in ready]
        self._feed()
        return found

    def close(self) -> None:
        """End the processes."""
        for hand in self._hands:
            hand.stop()

    def _feed(self) -> None:
        for hand in self._hands:
            if self._waiting and hand.held is None:
                hand.give(self._waiting.popleft())

    def _verdict(self, hand: _Hand) -> Verdict:
        assert hand.held is not None
        key, hand.held = hand.held.key, None
        try:
            answer = hand.pipe.recv()
        except (EOFError, ConnectionResetError):
            hand.process.join()
            self._deaths += 1
            reason = f"the judge died (exit code {hand.process.exitcode})"
            if self._deaths >= DEATHS:
                raise GenerationError(f"judge: {reason}, as others before it") from None
            hand.stop()
            self._hands[self._hands.index(hand)] = _Hand(self._build)
            return Verdict(key, None, reason)
        if isinstance(answer, SpeechError):
            raise answer
        self._deaths = 0
        return answer


class _Hand:
    """This process's end of a judging process. held: the recording that it has."""

    def __init__(self, build: Callable[[], Sequence[Judge]]):
        self.held: Recording | None = None
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(build, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, recording: Recording) -> None:
        """Send a recording."""
        self.held = recording
        with suppress(BrokenPipeError, ConnectionResetError):  # found by the next `recv`
            self.pipe.send(recording)

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _work(build: Callable[[], Sequence[Judge]], pipe: Connection) -> None:
    """Run in the process: judge what comes. It ends when nobody sends any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            judges = build()
        except SpeechError as error:
            pipe.recv()
            pipe.send(error)
            return
        with tempfile.TemporaryDirectory(prefix="judge-") as folder:
            for recording in _received(pipe):
                path = Path(folder) / f"sound{recording.suffix}"
                path.write_bytes(recording.sound)
                row = Row(recording.key, path, recording.text, recording.reference)
                [found] = judged([row], judges)
                figures = {name: float(value) for name, value in found.figures.items()}
                pipe.send(Verdict(recording.key, None if found.error else figures, found.error))


def _received(pipe: Connection) -> Iterator[Recording]:
    while True:
        yield pipe.recv()
