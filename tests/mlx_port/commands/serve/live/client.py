"""A WebSocket client of the live route, from the `websockets` package."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.mlx_port.commands.serve.served import SOON, Served

PATH = "/v1/audio/speech/stream"


class Client:
    """A connection, and what came over it. sound: pcm.  events: all else.  code: of the close."""

    def __init__(self, connection: ClientConnection):
        self.connection = connection
        self.sound, self.events = b"", list[dict[str, Any]]()
        self.code: int | None = None

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        self.connection.send(json.dumps({"type": kind, **fields}))

    def hear(self) -> dict[str, Any] | None:
        """Take frames up to the next event; None for a close."""
        while True:
            try:
                frame = self.connection.recv(SOON)
            except ConnectionClosed as closed:
                self.code = None if closed.rcvd is None else closed.rcvd.code
                return None
            if isinstance(frame, str):
                self.events.append(json.loads(frame))
                return self.events[-1]
            self.sound += frame

    def end(self) -> None:
        """Take all that comes, up to the close."""
        while self.hear() is not None:
            pass

    def listen(self, size: int) -> None:
        """Take frames until there are so many bytes of sound."""
        while len(self.sound) < size:
            frame = self.connection.recv(SOON)
            if isinstance(frame, bytes):
                self.sound += frame
            else:
                self.events.append(json.loads(frame))


@contextmanager
def client(server: Served | str, headers: dict[str, str] | None = None) -> Iterator[Client]:
    """Connect. server: or its address."""
    url = server if isinstance(server, str) else server.url
    address = url.replace("http", "ws") + PATH
    with connect(address, additional_headers=headers, proxy=None, max_size=None) as connection:
        yield Client(connection)


def said(server: Served, *texts: str, **start: Any) -> Client:
    """Speak texts to the end, or to the server's close."""
    with client(server) as found:
        with suppress(ConnectionClosed):
            found.send("start", **start)
            for text in texts:
                found.send("text", text=text)
            found.send("end")
        found.end()
    return found


@contextmanager
def raw(server: Served) -> Iterator[socket.socket]:
    """A bare socket."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), SOON) as found:
        yield found
