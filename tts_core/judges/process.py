"""Judges in processes of their own, which judge recordings while a model speaks the next ones."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tts_core.judges.judging import Judge, judged
from tts_core.judges.rows import RecordingRow
from tts_core.processes import Died, Processes, WorkerProcess

ENDING = "judge: the judge died (exit code {code}), as others before it"


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
        self._waiting: deque[Recording] = deque()
        self._folder = tempfile.TemporaryDirectory(prefix="judge-")  # of all, for a process may be ended
        work = partial(_work, Path(self._folder.name))
        self._processes = Processes(build, work, [{}] * count, ending=ENDING, daemon=True)

    @property
    def pending(self) -> int:
        """Recordings without a verdict."""
        return len(self._waiting) + len(self._busy())

    def begin(self, recording: Recording) -> None:
        """Take a recording; its verdict is among the next ones."""
        self._waiting.append(recording)
        self._feed()

    def verdicts(self, patience: float | None) -> list[Verdict]:
        """Collect finished judgments. patience: seconds to wait for the first; None waits for one.

        Raises the SpeechError of a judge that cannot be built, GenerationError if processes keep dying.
        """
        found = []
        for worker, answer in self._processes.answers(self._busy(), patience):
            [key], worker.held = worker.held, {}
            if isinstance(answer, Died):
                answer = Verdict(key, None, f"the judge died (exit code {answer.exit_code})")
            found.append(answer)
        self._feed()
        return found

    def close(self) -> None:
        """End the processes."""
        self._processes.stop()
        self._folder.cleanup()

    def _busy(self) -> list[WorkerProcess]:
        return [worker for worker in self._processes.workers if worker.held]

    def _feed(self) -> None:
        for worker in self._processes.workers:
            if self._waiting and not worker.held:
                recording = self._waiting.popleft()
                worker.give(recording.key, recording)


def _work(folder: Path, judges: Sequence[Judge], pipe: Connection) -> None:
    """Run in the process: judge recordings as they arrive. folder: of the recordings of all processes."""
    while True:
        recording: Recording = pipe.recv()
        path = folder / f"sound{os.getpid()}{recording.suffix}"
        path.write_bytes(recording.sound)
        row = RecordingRow(recording.key, path, recording.text, recording.reference)
        [found] = judged([row], judges)
        figures = {name: float(value) for name, value in found.figures.items()}
        pipe.send(Verdict(recording.key, None if found.error else figures, found.error))
