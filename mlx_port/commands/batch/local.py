"""Workers of this machine: one process a device, which this one starts, feeds and listens to.

A worker that dies costs the rows that it was speaking; another takes its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Protocol

from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import TextRow
from tts_core.processes import DEATHS, Died, Processes, WorkerProcess

Keyed = tuple[TextRow, str]


class Speaks(Protocol):
    """Interface of a worker process's model: `worker.build_speaker`."""

    def speak(self, rows: Iterable[Keyed]) -> Iterator[Outcome]:
        """Speak rows; yield each as it ends."""
        ...


def devices(backend: str) -> list[dict[str, str]]:
    """List the environments of this machine's devices: one a CUDA device, else one without changes."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(number) for number in range(_cuda_devices())]
    return [{"CUDA_VISIBLE_DEVICES": name} for name in names if name] or [{}]


def _cuda_devices() -> int:
    """Count NVIDIA devices without starting CUDA in this process."""
    try:
        return sum(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev"))
    except OSError:
        return 0


def speak_locally(
    build: Callable[[], Speaks], rows: Iterable[Keyed], environments: Sequence[Mapping[str, str]]
) -> Generator[Outcome]:
    """Speak rows on all devices; yield each as it ends.

    build: makes a worker, in its process.  environments: each worker's environment.

    Raises the error of a worker that cannot load the model, and GenerationError if workers keep dying.
    """
    waiting = iter(rows)
    ending = f"batch: {DEATHS} workers died one after the other; is there too little memory?"
    processes = Processes(
        build, _work, environments, ending=ending, daemon=False
    )  # judges are their children
    fed = set[WorkerProcess]()  # those for which there are no more rows
    try:
        while busy := [worker for worker in processes.workers if worker not in fed or worker.held]:
            for worker, answer in processes.answers(busy):
                if isinstance(answer, Died):
                    yield from _lost(worker, answer)
                elif answer is not None:
                    worker.held.pop(answer.key, None)
                    yield answer
                elif (row := next(waiting, None)) is not None:
                    worker.give(row[1], row)
                else:
                    fed.add(worker)
                    worker.give(None, None)
    finally:
        processes.stop()


def _lost(worker: WorkerProcess, died: Died) -> Iterator[Outcome]:
    """The rows that died with a worker."""
    for row, key in worker.held.values():
        yield Outcome(row.number, key, row.id, error=f"the worker died (exit code {died.exit_code})")


def _work(worker: Speaks, pipe: Connection) -> None:
    """Run in the worker: ask for rows by None, send outcomes."""

    def rows() -> Iterator[Keyed]:
        while True:
            pipe.send(None)
            row = pipe.recv()
            if row is None:
                return
            yield row

    for outcome in worker.speak(rows()):
        pipe.send(outcome)
