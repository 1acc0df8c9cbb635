"""An event loop whose clock jumps to the next timer, so that seconds of waiting take none and are exact.

Only for programs whose other events are there at once: coroutines, and Unix sockets of this process.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _Jumping(selectors.DefaultSelector):
    """A selector that never waits. moment: of the clock, in seconds."""

    moment = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing can happen any more"
            self.moment += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop by the selector's clock."""

    def __init__(self) -> None:
        self.clock = _Jumping()
        super().__init__(self.clock)

    def time(self) -> float:
        """Seconds since the loop was made, as its timers count them."""
        return self.clock.moment


def run(program: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine by a virtual clock."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)
