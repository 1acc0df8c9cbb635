"""Which requests fit in a running batch's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tts_core.codecs.policy import CodecPolicy
from tts_core.config import Configs
from tts_core.memory.fits import Plan, check_places, together
from tts_core.memory.footprint import Footprint
from tts_core.nn.host import Host


def _any(requests: Sequence[Any]) -> bool:
    return True


class Admission:
    """The places of a running batch, by the memory plan of its requests.

    On backends whose rows are of fixed size the whole batch is allocated at once; on others each request
    counts, beside the others, with the length that it may reach.
    places: at most.
    whole: texts → the job that bounds a batch of so many.
    policy: the codec's windows.
    holds: requests → True if the batch has rows for them together; may raise UsageError for the last one.
    Raises ResourceError if not even one text fits in a batch of fixed size.
    """

    def __init__(
        self,
        plan: Plan,
        configs: Configs,
        host: Host,
        places: int,
        whole: Callable[[int], Any],
        *,
        policy: CodecPolicy | None = None,
        holds: Callable[[Sequence[Any]], bool] = _any,
    ):
        self.plan, self.configs, self.host, self.policy, self._holds = plan, configs, host, policy, holds
        self._is_fixed, self._machine = host.backend in plan.fixed, host.machine(policy)
        check_places(places)
        if self._is_fixed:
            plan.check_running(configs, whole(1), self._machine)
            places = plan.places(configs, whole, places, self._machine)
        self.places = places

    def promised(self, requests: Sequence[Any]) -> int:
        """Bound the bytes that requests may still allocate."""
        if not requests:
            return 0
        if self._is_fixed and self.plan.serial:
            return max(self._footprint([request]).peak for request in requests)
        found = self._footprint(requests)
        return found.work if self._is_fixed else found.running

    def fits(self, request: Any, others: Sequence[Any], promised: int) -> bool:
        """Return True if a request fits beside others and the bytes that other models may allocate.

        Raises ResourceError for one that does not fit in an empty batch either.
        """
        if self._is_fixed:
            if self.plan.serial:
                machine = self.host.machine(self.policy)
                self.plan.check_running(self.configs, request.job(), machine, "peak")
                if not machine.fits(self._footprint([request]).peak + promised):
                    return False
        else:
            if not others:
                self._machine = self.host.machine(self.policy)
                self.plan.check_running(self.configs, request.job(), self._machine)
            if not self._machine.fits(self._footprint([*others, request]).running + promised):
                return False
        return len(others) < self.places and self._holds([*others, request])

    def _footprint(self, requests: Sequence[Any]) -> Footprint:
        return self.plan.footprint(
            self.configs, together([request.job() for request in requests]), self._machine
        )
