"""The connections of the HTTP server: uvicorn's, with limits for those that stand still."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mlx_port.commands.serve.live.messages import CLOSING

HEAD_SECONDS = 15.0  # for the head of a request to arrive
LINGER_SECONDS = 10.0  # for a client to read some of the last bytes of a WebSocket, and to close it


class HttpConnection(H11Protocol):
    """A connection that is closed if the head of its next request does not arrive in time."""

    def __init__(self, *arguments: Any, **named: Any):
        super().__init__(*arguments, **named)
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As in asyncio.Protocol."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """As in asyncio.Protocol."""
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """As in H11Protocol."""
        super().on_response_complete()
        self._wait()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """As in H11Protocol."""
        self._stop()
        super().handle_websocket_upgrade(event)

    def _wait(self) -> None:
        self._stop()
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that may finish its speech while the server shuts down, and is never left half open."""

    def shutdown(self) -> None:
        """As in WebSocketsSansIOProtocol."""
        if self.handshake_complete and not self.close_sent:
            self.queue.put_nowait({"type": CLOSING})  # type: ignore[typeddict-item]
        else:
            super().shutdown()

    async def run_asgi(self) -> None:
        """As in WebSocketsSansIOProtocol. A client that reads nothing more is cut off after a while."""
        await super().run_asgi()
        self.loop.call_later(LINGER_SECONDS, self._part)

    def _part(self, before: int | None = None) -> None:
        """Cut the connection once all is written, or nothing since the last look.

        before: bytes that were left then.
        """
        left = self.transport.get_write_buffer_size()
        if left and (before is None or left < before):
            self.loop.call_later(LINGER_SECONDS, self._part, left)
        else:
            self.transport.abort()
