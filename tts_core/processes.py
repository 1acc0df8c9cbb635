"""Processes of this machine that work for this one: fed, listened to, and replaced when they die."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

from tts_core.errors import GenerationError, SpeechError

DEATHS = 3  # of processes in a row, without an answer between them, that end the run
Worker = TypeVar("Worker")


class Died(NamedTuple):
    """What is heard of a process that died."""

    exit_code: int | None


class WorkerProcess:
    """A process and the pipe to it. held: what it was given and has not answered, by key."""

    def __init__(self, environment: Mapping[str, str], process: BaseProcess, pipe: Connection):
        self.environment, self.process, self.pipe = environment, process, pipe
        self.held: dict[str, Any] = {}

    def give(self, key: str | None, work: Any) -> None:
        """Send it work. key: None for what is not answered."""
        if key is not None:
            self.held[key] = work
        with suppress(BrokenPipeError, ConnectionResetError):  # found when it is listened to
            self.pipe.send(work)

    def stop(self) -> None:
        """End the process."""
        self.pipe.close()
        self.process.terminate()
        self.process.join()


class Processes(Generic[Worker]):
    """Processes that each build a worker and let it work.

    build: makes the worker, in its process.
    work: receives from the pipe and sends answers, until nobody listens; None is no answer.
    environments: the environment of each process.
    ending: the error when they keep dying; {code} is the last exit code.
    daemon: they end with this process, and start none of their own.
    """

    def __init__(
        self,
        build: Callable[[], Worker],
        work: Callable[[Worker, Connection], None],
        environments: Sequence[Mapping[str, str]],
        *,
        ending: str,
        daemon: bool,
    ):
        self._build, self._work, self._ending, self._daemon = build, work, ending, daemon
        self._deaths = 0
        self.workers = [self._start(environment) for environment in environments]

    def answers(
        self, workers: Collection[WorkerProcess], patience: float | None = None
    ) -> Iterator[tuple[WorkerProcess, Any]]:
        """Yield what processes said. A dead one is heard as Died, and another takes its place.

        patience: seconds to wait for the first; None waits for one.
        Raises the SpeechError of a worker that cannot be built, GenerationError if processes keep dying.
        """
        ready = wait([worker.pipe for worker in workers], patience)
        for worker in [worker for worker in workers if worker.pipe in ready]:
            try:
                answer = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                worker.process.join()
                worker.pipe.close()
                self._deaths += 1
                yield worker, Died(worker.process.exitcode)
                if self._deaths >= DEATHS:
                    raise GenerationError(self._ending.format(code=worker.process.exitcode)) from None
                self.workers[self.workers.index(worker)] = self._start(worker.environment)
                continue
            if isinstance(answer, SpeechError):
                raise answer
            if answer is not None:
                self._deaths = 0
            yield worker, answer

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers:
            worker.stop()

    def _start(self, environment: Mapping[str, str]) -> WorkerProcess:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        process = context.Process(target=_run, args=(self._build, self._work, theirs), daemon=self._daemon)
        with _environment(environment):
            process.start()
        theirs.close()
        return WorkerProcess(environment, process, pipe)


def _run(build: Callable[[], Worker], work: Callable[[Worker, Connection], None], pipe: Connection) -> None:
    """Run in the process. It ends when nobody listens any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            worker = build()
        except SpeechError as error:
            pipe.send(error)
            return
        work(worker, pipe)


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
