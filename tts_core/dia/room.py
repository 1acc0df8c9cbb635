"""Memory of a running batch: how many texts fit together, by the plan."""

from __future__ import annotations

from collections.abc import Sequence

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.dia.memory import FIXED, DiaJob, check_running, estimate, fitting_batch
from tts_core.memory.fits import check_places
from tts_core.nn.host import Host


class Room:
    """The memory of a batch on a device.

    On backends whose caches are of fixed size the whole batch is allocated at once, for texts and speech as
    long as `longest`. On others each text counts with the length that it may reach.
    """

    def __init__(self, configs: Configs, policy: CodecPolicy, host: Host, longest: DiaJob):
        self.configs, self.policy, self.host = configs, policy, host
        self.fixed = host.backend in FIXED
        self._longest = longest
        self._machine = host.machine(policy)

    def places(self, most: int) -> int:
        """Return how many texts the batch can have. Raises ResourceError if not even one fits."""
        check_places(most)
        if not self.fixed:
            return most
        self.check(self._longest)
        return fitting_batch(self.configs, DiaJob.together([self._longest] * most), self._machine)

    def check(self, job: DiaJob) -> None:
        """Raise ResourceError, with what would fit, unless a job fits by itself."""
        check_running(self.configs, job, self._machine)

    def fits(self, running: Sequence[DiaJob], more: DiaJob, *, promised: int) -> bool:
        """Return True if a text can join those that run. promised: bytes that others may still allocate.

        Raises ResourceError if it does not fit in an empty batch either.
        """
        if self.fixed:
            return True
        if not running:
            self._machine = self.host.machine(self.policy)
            self.check(more)
        return self._machine.fits(self._takes([*running, more]) + promised)

    def promised(self, running: Sequence[DiaJob]) -> int:
        """Bound the bytes that texts that run may still allocate."""
        if not running:
            return 0
        if not self.fixed:
            return self._takes(running)
        found = estimate(self.configs, DiaJob.together(running), self._machine)
        return found.running - found["cache"].bytes - found["text"].bytes

    def _takes(self, jobs: Sequence[DiaJob]) -> int:
        return estimate(self.configs, DiaJob.together(jobs), self._machine).running
