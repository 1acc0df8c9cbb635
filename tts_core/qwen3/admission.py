"""Which requests fit in a running batch of Qwen3-TTS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tts_core.errors import UsageError
from tts_core.memory.fits import check_places
from tts_core.memory.fits import places as fitting
from tts_core.qwen3.memory import FIXED, Qwen3Job, estimate
from tts_core.qwen3.request import Qwen3Request
from tts_core.speaking.admission import PeakAdmission
from tts_core.speaking.net import StreamNet

SERVED = 8192  # positions of a request of unknown length, where memory is taken at once


class Qwen3Admission(PeakAdmission):
    """The places of a running batch, of texts of at most `room` positions; requests between two pieces keep
    theirs.

    job: bounds each request that will join; None for any. Raises ResourceError for too little memory.
    """

    def __init__(self, net: StreamNet, places: int, job: Qwen3Job | None):
        self.net, self.machine = net, net.host.machine(net.policy)  # as the batch begins
        self.room = net.network.config.max_positions
        check_places(places)
        if net.host.backend in FIXED:
            self.room = min(self.room, SERVED if job is None else job.positions + 1)
            longest = job or Qwen3Job(frames=self.room // 2, prompt=self.room // 2)

            def running(texts: int) -> int:
                return estimate(net.configs, replace(longest, texts=texts), self.machine).running

            places = fitting(places, running, self.machine)
        super().__init__(net.host, places, self._bytes)

    def fits(self, request: Qwen3Request, others: Sequence[Qwen3Request], promised: int) -> bool:
        longest = request.job().positions
        if longest > self.room:
            raise UsageError(
                f"text: {longest} positions with its speech are more than the {self.room} of this batch; "
                "give shorter texts, or a smaller max_seconds"
            )
        return super().fits(request, others, promised)

    def _bytes(self, request: Qwen3Request) -> int:
        """Estimate a request's bytes: all of it where caches grow, else besides them."""
        found = estimate(self.net.configs, request.job(), self.machine)
        return found.running_beside("cache") if self.host.backend in FIXED else found.running
