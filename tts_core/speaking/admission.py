"""Which requests fit in a running batch's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from tts_core.memory.fits import check
from tts_core.nn.host import Host


class Admission(Protocol):
    """The places of a running batch, and the memory plan of its requests."""

    places: int

    def promised(self, requests: Sequence[Any]) -> int:
        """Bound the bytes that requests may still allocate."""
        ...

    def fits(self, request: Any, others: Sequence[Any], promised: int) -> bool:
        """Return True if a request fits beside others and the bytes that other models may allocate.

        Raises ResourceError for one that does not fit in an empty batch either.
        """
        ...


class PeakAdmission(Admission):
    """The places of a running batch whose requests reach their peaks one after the other.

    needed: bytes of a request at its peak, besides the batch's own; each request is estimated once.
    """

    def __init__(self, host: Host, places: int, needed: Callable[[Any], int]):
        self.host, self.places, self._needed = host, places, needed
        self._peaks = WeakKeyDictionary[Any, int]()

    def promised(self, requests: Sequence[Any]) -> int:
        return max(map(self._peak, requests), default=0)

    def fits(self, request: Any, others: Sequence[Any], promised: int) -> bool:
        needed = self._peak(request)
        check("a request's stages", needed, self.host.machine())
        return len(others) < self.places and self.host.machine().fits(needed + promised)

    def _peak(self, request: Any) -> int:
        if request not in self._peaks:
            self._peaks[request] = self._needed(request)
        return self._peaks[request]
