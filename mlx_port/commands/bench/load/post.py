"""A server's speech route, and one POST over HTTP/1.1 whose answer is read as it arrives.

Every request has its own connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from tts_core.errors import UsageError

ROUTE = "/audio/speech"
PIECE = 65536  # bytes taken at once, at most


@dataclass(frozen=True)
class Address:
    """Where requests are sent. path: of the speech route.  tls: https."""

    host: str
    port: int
    path: str
    tls: bool

    @property
    def authority(self) -> str:
        """Host and port, as a header and a reader write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address of the route."""
        return f"http{'s' if self.tls else ''}://{self.authority}{self.path}"


def read_address(url: str) -> Address:
    """Read a server's URL: with or without /v1, or the route itself. Raises UsageError."""
    wrong = UsageError("server: give its address as http://HOST:PORT, without user, query or fragment")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise wrong
    try:
        parts = urlsplit(url)
        port = parts.port
        (parts.hostname or "").encode("idna")  # as a connection will
    except ValueError:
        raise wrong from None
    extra = parts.username is not None or parts.query or parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or extra:
        raise wrong
    path, tls = parts.path.rstrip("/"), parts.scheme == "https"
    if not path.endswith(ROUTE):
        path = (path if path.endswith("/v1") else f"{path}/v1") + ROUTE
    return Address(parts.hostname, port or (443 if tls else 80), path, tls)


@dataclass(frozen=True)
class Reply:
    """An answer whose head has come. headers: by lower-case name."""

    status: int
    headers: Mapping[str, str]
    reader: asyncio.StreamReader

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises EOFError (IncompleteReadError) if the connection ends before the body, ValueError for a body
        that is not HTTP.
        """
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._line()).partition(b";")[0], 16):
                async for piece in self._exactly(size):
                    yield piece
                if await self._line():
                    raise ValueError("a chunk is longer than its size")
            return
        if "content-length" in self.headers:
            async for piece in self._exactly(int(self.headers["content-length"])):
                yield piece
            return
        while piece := await self.reader.read(PIECE):
            yield piece

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self.reader.read(min(size, PIECE))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(piece)
            yield piece

    async def _line(self) -> bytes:
        return await read_line(self.reader)


@asynccontextmanager
async def post(address: Address, body: bytes, key: str | None) -> AsyncIterator[Reply]:
    """Send a JSON body and wait for the head of the answer.

    key: sent as a bearer token.  Raises OSError without a connection, EOFError and ValueError as
    `Reply.pieces`.
    """
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=address.tls or None)
    try:
        head = [
            f"POST {address.path} HTTP/1.1",
            f"host: {address.authority}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if key is not None:
            head.append(f"authorization: Bearer {key}")
        writer.write("\r\n".join([*head, "", ""]).encode("ascii") + body)
        yield await read_head(reader)
    finally:
        writer.transport.abort()


async def read_head(reader: asyncio.StreamReader) -> Reply:
    """Read status line and headers."""
    version, _, rest = (await read_line(reader)).decode("latin-1").partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP/1.1")
    status, headers = int(rest[:3]), {}
    while line := await read_line(reader):
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return Reply(status, headers, reader)


async def read_line(reader: asyncio.StreamReader) -> bytes:
    """Read a line without its end. Raises EOFError if it has none."""
    line = await reader.readline()
    if not line.endswith(b"\n"):
        raise asyncio.IncompleteReadError(line, None)
    return line.rstrip(b"\r\n")
