"""A speech that its request leaves behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from mlx_port.commands.serve.flow import Flow


def test_a_request_that_is_dropped_while_it_is_queued_keeps_no_place() -> None:
    """The speech is canceled as soon as it is there."""
    cancelled: list[bool] = []

    async def run() -> None:
        service: Any = SimpleNamespace(order=lambda asked: asked)
        asked: Any = None
        flow = Flow(service, asked)

        def queue(order: Any, notice: Any) -> Any:
            flow.close()  # the client leaves at this moment
            return SimpleNamespace(cancel=lambda: cancelled.append(True))

        service.queue = queue
        await flow.submit()

    asyncio.run(run())
    assert cancelled == [True]
