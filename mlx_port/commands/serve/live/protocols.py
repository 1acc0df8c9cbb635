"""The connections of the HTTP server: uvicorn's, with limits for those that stand still."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from mlx_port.commands.serve.live.messages import CLOSING

_LOG = logging.getLogger("mlx_port.serve")
HEAD_SECONDS = 15.0  # for the head of a request to arrive, and for more of its body
LINGER_SECONDS = 10.0  # for a client to read some of the last bytes of a WebSocket, and to close it
BODY = (b"content-length", b"transfer-encoding")  # headers of a request with one

# Bytes that the system keeps of an answer, which Linux doubles. By itself Linux lets it grow to megabytes and
# takes no more before a third is read: for minutes a slow reader would look like one that does not read.
SEND_BUFFER = 1 << 16


class WholeLines(ReceiveBuffer):
    """h11's buffer, but lines of a head or a trailer end with CRLF, and none goes on in the next.

    h11 also takes a bare LF and folded lines, which a proxy may read as another request.
    """

    def maybe_extract_lines(self) -> list[bytearray] | None:
        before, lines = len(self), super().maybe_extract_lines()
        if lines is None:
            return None
        if before - len(self) != sum(len(line) + 2 for line in lines) + 2:
            raise h11.LocalProtocolError("a line ends without CR")
        if any(line[:1] in (b" ", b"\t") for line in lines):
            raise h11.LocalProtocolError("a folded line")
        return lines


class HttpConnection(H11Protocol):
    """A connection that is closed if the head of its next request does not arrive in time, if nothing more of
    a body does, or if its client takes nothing of an answer.

    read_seconds: within which a client must take some of what is written.  on_stall: called for one that
    does not.
    """

    def __init__(self, *arguments: Any, read_seconds: float, on_stall: Callable[[], None], **named: Any):
        super().__init__(*arguments, **named)
        self.conn._receive_buffer = WholeLines()
        self.app_state = {**self.app_state, "cut": lambda: self.transport.close()}
        self._read_seconds, self._on_stall = read_seconds, on_stall
        self._patience: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.set_write_buffer_limits(0)  # paused as long as the system has not taken all
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._trust()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.SEND_BODY:
            self._wait()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        self._trust()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        if any(name in BODY and value.strip(b"0") for name, value in self.headers):
            self.send_400_response("A WebSocket begins without a body.")
            return
        self._stop()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Refuse a request and close; say nothing once its answer has begun. Its route sees a disconnect."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _wait(self) -> None:
        self._stop()
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if self.flow.write_paused:
            self._wait()  # the last answer is still being read
        elif self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()

    def _look(self, before: int | None = None) -> None:
        """Look again and again whether the client reads. before: bytes that were left at the last look."""
        left = self.transport.get_write_buffer_size()
        if before is None or left < before:
            self._watch = self.loop.call_later(self._read_seconds, self._look, left)
        else:
            _LOG.info("a client that took nothing for %g s is cut off", self._read_seconds)
            self._on_stall()
            self.transport.abort()

    def _trust(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket that may finish its speech while the server shuts down, and is never left half open."""

    def shutdown(self) -> None:
        if self.handshake_complete and not self.close_sent:
            self.queue.put_nowait({"type": CLOSING})  # type: ignore[typeddict-item]
        else:
            super().shutdown()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; close for a text that is not UTF-8, of which uvicorn logs a traceback."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.conn.fail(1007, "not UTF-8")
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def run_asgi(self) -> None:
        """Run the application. A client that reads nothing more is cut off after a while."""
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
