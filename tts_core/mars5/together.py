"""Diffusions of MARS5 that share a call of the network, each at its own timestep."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Generic, TypeVar

from tts_core.errors import ResourceError, comes_late, shortage
from tts_core.mars5.engine import DiffusionRun, Mars5Engine
from tts_core.mars5.memory import Mars5Job, diffusion_bytes
from tts_core.memory.machine import Machine
from tts_core.nn.calls import drop_errors

_LOG = logging.getLogger("tts_core")
# A CPU gains nothing from frames of several runs in one product, but of less than a second of speech, and
# the first run would end later: docs/measured/speed.md
ONE_BY_ONE = ("torch-cpu", "mlx-cpu")
MOST_ROWS = 4096  # of a call: an H200 computes the products of 1,800 at 80 % of its rate or more

One = TypeVar("One")


def in_line(lengths: Sequence[int]) -> list[slice]:
    """Return the place of each of several sequences that follow one another."""
    return [slice(start, stop) for start, stop in pairwise(accumulate(lengths, initial=0))]


def alike(ones: Sequence[One], key: Callable[[One], Hashable]) -> list[list[One]]:
    """Group values of equal keys; groups and values keep their order."""
    groups: dict[Hashable, list[One]] = {}
    for one in ones:
        groups.setdefault(key(one), []).append(one)
    return [*groups.values()]


@dataclass(eq=False)
class QueuedDiffusion(Generic[One]):
    """A diffusion of `owner`. begin: starts it.  run: None before its turn."""

    owner: One
    job: Mars5Job
    begin: Callable[[], DiffusionRun]
    run: DiffusionRun | None = None


class Diffusions(Generic[One]):
    """The diffusions of a running batch, in order. The first ones take a timestep together.

    As many as compute MOST_ROWS rows and fit in the free memory; at least one; on a CPU only one. If a call
    lacks memory after all, the next one is of half as many, until one of them leaves.
    """

    def __init__(self, engine: Mars5Engine):
        self.engine, self.host = engine, engine.host
        self.queue: list[QueuedDiffusion[One]] = []
        self._known: list[QueuedDiffusion[One]] = []  # the queue when the first ones were chosen
        self._first: list[QueuedDiffusion[One]] = []
        self._runs: list[DiffusionRun] = []  # of the call
        self._timestep: Callable[[], None] | None = None
        self._most: int | None = None  # of a call, after one that lacked memory

    def add(self, owner: One, job: Mars5Job, begin: Callable[[], DiffusionRun]) -> None:
        """Let a diffusion wait for its turn."""
        self.queue.append(QueuedDiffusion(owner, job, begin))

    def drop(self, owner: One) -> None:
        """Forget the diffusion of this owner, if there is one."""
        self.queue = [each for each in self.queue if each.owner != owner]
        self._most = None
        if not self.queue:
            self._known, self._first, self._runs, self._timestep = [], [], [], None

    @property
    def promised(self) -> int:
        """Bytes of the diffusions under way, which reach their peaks together."""
        machine = self.host.machine()
        return sum(self._bytes(each, machine) for each in self.queue if each.run is not None)

    def step(self) -> list[tuple[One, DiffusionRun | ResourceError]]:
        """Run a timestep of the first ones. Returns those that it ended, which leave the queue, and one that
        lacks memory by itself, with its error.
        """
        lack = self._advance()
        ended: list[tuple[One, DiffusionRun | ResourceError]] = [
            (each.owner, each.run) for each in self._first if each.run is not None and each.run.done
        ]
        if lack is not None:
            ended += self._shrink(lack)
        for owner, _ in ended:
            self.drop(owner)
        return ended

    def _advance(self) -> ResourceError | None:
        """Run a timestep; returns the error of a call that lacked memory or time.

        Each run is then as before the timestep, or after it; all begin again if what they computed may be
        wrong. Raises the error of an earlier call.
        """
        self.host.settle()
        try:
            if self.queue != self._known:
                self._choose()
            if self._timestep is not None:
                self._timestep()
            self.host.settle()
        except Exception as error:
            lack, again = shortage(error), comes_late(error)
            if lack is None:
                raise
        else:
            return None
        if again:
            for each in self._first:
                each.run = None
        drop_errors(self.host)
        return lack

    def _shrink(self, lack: ResourceError) -> list[tuple[One, DiffusionRun | ResourceError]]:
        """Let the next call be of half as many; returns the only one of a call with its error."""
        count = len(self._first)
        self._known, self._runs, self._timestep = [], [], None
        if count == 1:
            return [(self._first[0].owner, lack)]
        self._most = count // 2
        _LOG.warning("%d diffusions at once failed (%s); going on with %d", count, lack, self._most)
        return []

    def _choose(self) -> None:
        """Choose the first ones anew; only other runs need another call."""
        self._known, self._first = [*self.queue], self.queue[: self._together()]
        for each in self._first:
            each.run = each.begin() if each.run is None else each.run
        runs = [each.run for each in self._first if each.run is not None and not each.run.done]
        if runs != self._runs:
            self._timestep = None  # its memory is free before the next one's is taken
            self._timestep = self.engine.together(runs) if runs else None
        self._runs = runs

    def _together(self) -> int:
        if self.host.backend in ONE_BY_ONE:
            return 1
        rows = accumulate(each.job.rows for each in self.queue)
        most, machine = sum(count <= MOST_ROWS for count in rows), self.host.machine()
        if machine.free is not None:
            needed = accumulate(self._bytes(each, machine) for each in self.queue[:most])
            most = sum(map(machine.fits, needed))
        return max(1, most if self._most is None else min(most, self._most))

    def _bytes(self, drawing: QueuedDiffusion[One], machine: Machine) -> int:
        return diffusion_bytes(self.engine.configs, drawing.job, machine)
