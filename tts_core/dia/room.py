"""Memory of a running batch: how many texts fit together, by the plan."""

from __future__ import annotations

from collections.abc import Sequence

from tts_core.codecs.dac import DacConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.config import DiaConfig
from tts_core.dia.memory import FIXED, Job, check_running, estimate, fitting_batch
from tts_core.memory.terms import Estimate
from tts_core.nn.host import Host


class Room:
    """The memory of a batch on a device.

    On backends whose caches are of fixed size the whole batch is allocated at once, for texts and speech as
    long as `longest`. On others each text counts with the length that it may reach.
    """

    def __init__(self, config: DiaConfig, codec: DacConfig, policy: CodecPolicy, host: Host, longest: Job):
        self.config, self.codec, self.policy, self.host = config, codec, policy, host
        self.fixed = host.backend in FIXED
        self._longest = longest
        self._free = host.free_bytes()

    def places(self, most: int) -> int:
        """Return how many texts the batch can have. Raises ResourceError if not even one fits."""
        if not self.fixed:
            return most
        self.check(self._longest)
        return fitting_batch(
            self.config,
            self.codec,
            Job.together([self._longest] * most),
            dtype=self.host.dtype,
            backend=self.host.backend,
            free=self._free,
            policy=self.policy,
        )

    def check(self, job: Job) -> None:
        """Raise ResourceError, with what would fit, unless a job fits by itself."""
        check_running(
            self.config,
            self.codec,
            job,
            dtype=self.host.dtype,
            backend=self.host.backend,
            free=self._free,
            policy=self.policy,
        )

    def fits(self, running: Sequence[Job], more: Job, *, promised: int) -> bool:
        """Return True if a text can join those that run. promised: bytes that others may still allocate.

        Raises ResourceError if it does not fit in an empty batch either.
        """
        if self.fixed:
            return True
        if not running:
            self._free = self.host.free_bytes()
            self.check(more)
        return self._free is None or self._takes([*running, more]) + promised <= self._free

    def promised(self, running: Sequence[Job]) -> int:
        """Bound the bytes that texts that run may still allocate."""
        if not running:
            return 0
        if not self.fixed:
            return self._takes(running)
        found = self._estimate(Job.together(running))
        return found.running - found["cache"].bytes - found["text"].bytes

    def _takes(self, jobs: Sequence[Job]) -> int:
        return self._estimate(Job.together(jobs)).running

    def _estimate(self, job: Job) -> Estimate:
        return estimate(
            self.config,
            self.codec,
            job,
            dtype=self.host.dtype,
            backend=self.host.backend,
            policy=self.policy,
        )
