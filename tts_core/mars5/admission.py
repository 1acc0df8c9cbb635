"""Which requests fit in a running batch of MARS5."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tts_core.errors import UsageError
from tts_core.mars5.memory import Mars5Job, estimate, places_that_fit
from tts_core.mars5.request import Mars5Request
from tts_core.speaking.admission import PeakAdmission
from tts_core.speaking.net import Net


class Mars5Admission(PeakAdmission):
    """The places of a running batch, for texts of at most `room` ids.

    job: bounds each request that will join; None for any of at most MAX_LEN ids. A job alone in its batch was
    checked by the caller. Raises ResourceError for too little memory.
    """

    def __init__(self, net: Net, places: int, job: Mars5Job | None):
        self.net, self.machine = net, net.host.machine()  # as the batch begins
        longest = job or Mars5Job(prompt_ids=1, frames=1)
        if job is None or places > 1:
            places = places_that_fit(net.configs, replace(longest, batch=places), self.machine)
        self.room = longest.max_len
        super().__init__(net.host, places, self._bytes)

    def fits(self, request: Mars5Request, others: Sequence[Mars5Request], promised: int) -> bool:
        if request.options.max_len > self.room:
            raise UsageError(
                f"generate_max_len_override: {request.options.max_len} ids; a running batch keeps "
                f"{self.room} of each request, lower it"
            )
        return super().fits(request, others, promised)

    def _bytes(self, request: Mars5Request) -> int:
        """Estimate the largest stage, besides a cache that is kept."""
        planned = estimate(self.net.configs, request.job(), self.machine)
        return planned.running if self.places == 1 else planned.running_beside("cache")
