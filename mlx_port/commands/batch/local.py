"""Workers of this machine: one process a device, which this one starts, feeds and listens to.

A worker that dies costs the rows that it was speaking; another takes its place.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Protocol

from tts_core.bulk.outcome import Outcome
from tts_core.bulk.rows import Row
from tts_core.errors import GenerationError, SpeechError

DEATHS = 3  # of workers in a row, without a row that was spoken, that end the run
Keyed = tuple[Row, str]


class Speaks(Protocol):
    """Interface of a worker process's model: `worker.Worker`."""

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
    build: Callable[[], Speaks], rows: Iterable[Keyed], places: Sequence[Mapping[str, str]]
) -> Generator[Outcome]:
    """Speak rows on all devices; yield each as it ends.

    build: makes a worker, in its process.  places: each worker's environment.

    Raises the error of a worker that cannot load the model, and GenerationError if workers keep dying.
    """
    waiting = iter(rows)
    workers = [_Hand(build, place) for place in places]
    deaths = 0
    try:
        while any(hand.busy for hand in workers):
            ready = wait([hand.pipe for hand in workers if hand.busy])
            for hand in [hand for hand in workers if hand.pipe in ready]:
                try:
                    message = hand.pipe.recv()
                except (EOFError, ConnectionResetError):
                    yield from hand.lost()
                    deaths += 1
                    if deaths >= DEATHS:
                        raise GenerationError(
                            f"batch: {deaths} workers died one after the other; is there too little memory?"
                        ) from None
                    workers[workers.index(hand)] = _Hand(build, hand.place)
                    continue
                if isinstance(message, SpeechError):
                    raise message
                if isinstance(message, Outcome):
                    deaths = 0
                    hand.held.pop(message.key, None)
                    yield message
                else:
                    hand.give(next(waiting, None))
    finally:
        for hand in workers:
            hand.stop()


class _Hand:
    """This process's end of a worker. held: rows that it was given and has not answered."""

    def __init__(self, build: Callable[[], Speaks], place: Mapping[str, str]):
        self.place, self.fed, self.held = place, False, dict[str, Keyed]()
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(build, theirs))
        with _environment(place):
            self.process.start()
        theirs.close()

    @property
    def busy(self) -> bool:
        """True until it has answered all rows that there are for it."""
        return not self.fed or bool(self.held)

    def give(self, row: Keyed | None) -> None:
        """Answer the worker's question for a row; None: there are no more."""
        if row is None:
            self.fed = True
        else:
            self.held[row[1]] = row
        with suppress(BrokenPipeError, ConnectionResetError):  # found by the next `recv`
            self.pipe.send(row)

    def lost(self) -> Iterator[Outcome]:
        """The rows that died with the worker."""
        self.process.join()
        self.pipe.close()
        for row, key in self.held.values():
            why = f"the worker died (exit code {self.process.exitcode})"
            yield Outcome(row.number, key, row.id, error=why)
        self.held.clear()

    def stop(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.join()


def _work(build: Callable[[], Speaks], pipe: Connection) -> None:
    """Run in the worker: ask for rows, send outcomes. It ends when nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    try:
        worker = build()
    except SpeechError as error:
        pipe.send(error)
        return

    def rows() -> Iterator[Keyed]:
        while True:
            pipe.send("row")
            row = pipe.recv()
            if row is None:
                return
            yield row

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        for outcome in worker.speak(rows()):
            pipe.send(outcome)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a process that starts inside."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
