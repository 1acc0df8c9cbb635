"""The HTTP server with the Wyoming port beside it: both start and drain together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from mlx_port.commands.serve.wyoming.port import WyomingPort


class Server(uvicorn.Server):
    """uvicorn's server. beside: a further port, if any."""

    def __init__(self, config: uvicorn.Config, beside: WyomingPort | None = None):
        super().__init__(config)
        self.beside = beside

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """As in uvicorn. Raises as WyomingPort.start."""
        if self.beside is not None:
            await self.beside.start()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        """As in uvicorn."""
        ending = [super().shutdown(sockets)]
        if self.beside is not None:
            ending.append(self.beside.stop(self.config.timeout_graceful_shutdown or 0))
        await asyncio.gather(*ending)
