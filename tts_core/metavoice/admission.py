"""Which requests fit in a running batch of MetaVoice."""

from __future__ import annotations

from collections.abc import Sequence

from tts_core.metavoice.inputs import most_rows
from tts_core.metavoice.memory import FIXED, MetaVoiceJob, estimate, places_that_fit, positions
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.metavoice.request import MetaVoiceRequest
from tts_core.speaking.admission import PeakAdmission


class MetaVoiceAdmission(PeakAdmission):
    """The places of a running batch on `rows` rows, for texts of at most `room` ids. Each text takes as many
    rows as the one with the most; guidance on speaker and text takes a row more.

    job: bounds each request where it is known that `places` of them fit; None for any request, on as many
    places as fit. Raises ResourceError for too little memory.
    """

    def __init__(self, net: MetaVoiceNet, places: int, job: MetaVoiceJob | None):
        self.net, self.machine = net, net.host.machine()  # as the batch begins
        if job is None:
            places = places_that_fit(net.configs, places, self.machine)
            self.rows, self.room = most_rows(places), net.facts.first.max_position_embeddings - 1
        else:
            self.rows, self.room = places * job.rows, positions(net.facts.first, job)
        super().__init__(net.host, places, self._bytes)

    def fits(self, request: MetaVoiceRequest, others: Sequence[MetaVoiceRequest], promised: int) -> bool:
        rows = (1 + len(others)) * max(one.sampling.rows for one in (request, *others))
        return super().fits(request, others, promised) and rows <= self.rows

    def _bytes(self, request: MetaVoiceRequest) -> int:
        """Estimate the largest stage, with the cache where it grows."""
        found = estimate(self.net.configs, request.job(), self.machine)
        return found.running_beside("cache") if self.machine.backend in FIXED else found.running
