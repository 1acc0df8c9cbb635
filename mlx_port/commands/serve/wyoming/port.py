"""The Wyoming port of a server: connections beside those of HTTP, in the same loop."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter

from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.wyoming.connection import Connection
from tts_core.errors import UsageError


class WyomingPort:
    """Listens from `start` to `stop`. address: host and port; port 0 takes a free one."""

    def __init__(self, service: Service, address: tuple[str, int]):
        self.service, self.address = service, address
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def start(self) -> None:
        """Listen. Raises UsageError for an address that is taken."""
        host, port = self.address
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=self.service.settings.limits.message
            )
        except OSError:
            raise UsageError(
                f"wyoming: {host}:{port} cannot be opened; another program may use it: give another --wyoming"
            ) from None
        self.address = self._server.sockets[0].getsockname()[:2]

    async def stop(self, seconds: float) -> None:
        """Close; speech under way may end within `seconds`."""
        if self._server is None:
            return
        self._server.close()
        for task, connection in self._connections.items():
            if not connection.is_speaking:
                task.cancel()
        if self._connections:
            await asyncio.wait([*self._connections], timeout=seconds)
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        connection = Connection(self.service, reader, writer)
        task = asyncio.ensure_future(connection.run())
        self._connections[task] = connection
        task.add_done_callback(lambda done: self._connections.pop(done))
