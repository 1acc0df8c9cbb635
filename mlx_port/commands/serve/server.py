"""The HTTP server with the Wyoming port beside it: both start and drain together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from mlx_port.commands.serve.wyoming.port import WyomingPort

LAST_WORDS = 2.0  # seconds for the answers of requests that were not finished in time


class Server(uvicorn.Server):
    """uvicorn's server. beside: a further port, if any."""

    def __init__(self, config: uvicorn.Config, beside: WyomingPort | None = None):
        super().__init__(config)
        self.beside = beside

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """Start to listen. Raises as WyomingPort.start."""
        if self.beside is not None:
            await self.beside.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        ending = [super().shutdown(sockets)]
        if self.beside is not None:
            ending.append(self.beside.stop(self.config.timeout_graceful_shutdown or 0))
        await asyncio.gather(*ending)
        if self.server_state.tasks:  # cancelled; each says so to its client
            await asyncio.wait([*self.server_state.tasks], timeout=LAST_WORDS)
