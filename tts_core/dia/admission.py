"""Which requests fit in a running batch of Dia."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs, config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.memory import FIXED, DiaJob, check_running, estimate, fitting_batch, grid_rows
from tts_core.dia.request import DiaRequest
from tts_core.memory.fits import check_places
from tts_core.nn.host import Host
from tts_core.speaking.admission import Admission


class DiaAdmission(Admission):
    """The places of a running batch, whose requests reach their peaks together.

    On backends whose caches are of fixed size the whole batch is allocated at once, for texts and speech as
    long as `longest`. On others each text counts with the length that it may reach.
    rows: of a grid, at most.
    policy: the codec's windows.
    job: bounds each request that will join; None for any. Raises ResourceError if not even one fits.
    """

    def __init__(self, configs: Configs, host: Host, places: int, job: DiaJob | None, policy: CodecPolicy):
        self.configs, self.policy, self.host = configs, policy, host
        config = config_of(configs, "dia", DiaConfig)
        self.longest = job or DiaJob(text_bytes=config.max_text_bytes, frames=config.max_frames)
        self.rows = 1 + grid_rows(config, self.longest)
        self._is_fixed, self._machine = host.backend in FIXED, host.machine(policy)
        check_places(places)
        if self._is_fixed:
            longest = replace(self.longest, batch=1)
            check_running(configs, longest, self._machine)
            places = fitting_batch(configs, DiaJob.together([longest] * places), self._machine)
        self.places = places

    def promised(self, requests: Sequence[DiaRequest]) -> int:
        if not requests:
            return 0
        jobs = [one.job() for one in requests]
        if not self._is_fixed:
            return self._bytes(jobs)
        found = estimate(self.configs, DiaJob.together(jobs), self._machine)
        return found.running - found["cache"].bytes - found["text"].bytes

    def fits(self, request: DiaRequest, others: Sequence[DiaRequest], promised: int) -> bool:
        if not self._is_fixed:
            if not others:
                self._machine = self.host.machine(self.policy)
                check_running(self.configs, request.job(), self._machine)
            jobs = [one.job() for one in (*others, request)]
            if not self._machine.fits(self._bytes(jobs) + promised):
                return False
        return len(others) < self.places

    def _bytes(self, jobs: Sequence[DiaJob]) -> int:
        return estimate(self.configs, DiaJob.together(jobs), self._machine).running
