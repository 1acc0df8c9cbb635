"""Which requests fit in a running batch of Dia2."""

from __future__ import annotations

from collections.abc import Sequence

from tts_core.codecs.policy import CodecPolicy
from tts_core.dia2.memory import FIXED, Dia2Job, cached_rows, check_running, estimate
from tts_core.dia2.recordings import longest_prefix
from tts_core.dia2.request import Dia2Request, longest_frames
from tts_core.memory.fits import check_places, largest
from tts_core.memory.terms import Estimate
from tts_core.speaking.admission import Admission
from tts_core.speaking.net import StreamNet


class Dia2Admission(Admission):
    """The places of a running batch, whose requests reach their peaks together.

    rows: steps that a text of it reads, at most.
    guided: some texts may be.
    policy: the codec's windows.
    job: bounds each request that will join; None for any. Raises ResourceError for too little memory.
    """

    def __init__(self, net: StreamNet, places: int, job: Dia2Job | None, policy: CodecPolicy):
        self.net, self.policy, config = net, policy, net.network.config
        longest = job or Dia2Job(longest_frames(config), longest_prefix(config))
        self.rows, self.guided = cached_rows(config, longest), longest.guided
        self._is_fixed = net.host.backend in FIXED
        self._machine = net.host.machine(policy)
        check_places(places)
        if self._is_fixed and self._machine.free is not None:
            check_memory(net, longest)
            places = largest(
                places, lambda texts: self._machine.fits(self._estimate([longest] * texts).running)
            )
        self.places = places

    def promised(self, requests: Sequence[Dia2Request]) -> int:
        return self._bytes([one.job() for one in requests]) if requests else 0

    def fits(self, request: Dia2Request, others: Sequence[Dia2Request], promised: int) -> bool:
        if not self._is_fixed:
            if not others:
                self._machine = self.net.host.machine(self.policy)
                check_memory(self.net, request.job())
            jobs = [one.job() for one in (*others, request)]
            if not self._machine.fits(self._bytes(jobs) + promised):
                return False
        return len(others) < self.places

    def _bytes(self, jobs: Sequence[Dia2Job]) -> int:
        """Bound the bytes that jobs may still allocate."""
        found = self._estimate(jobs)
        return found.running - (found["cache"].bytes if self._is_fixed else 0)

    def _estimate(self, jobs: Sequence[Dia2Job]) -> Estimate:
        return estimate(self.net.configs, Dia2Job.together(jobs), self._machine)


def check_memory(net: StreamNet, job: Dia2Job) -> None:
    """Raise ResourceError, with what would fit, unless a request fits in the free memory."""
    check_running(net.configs, job, net.host.machine(net.policy))
