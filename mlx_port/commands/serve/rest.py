"""The rest of a body that was answered before it had arrived: read and dropped, so that the answer is seen.

Many clients send all before they read. If the connection were closed at once, the system would discard the
answer with what still arrives, and such a client would see a reset connection.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive, Scope

MOST = 64 << 20  # bytes that are dropped
SECONDS = 5.0


class Rest:
    """What a client has not yet sent of its request, and the `receive` that counts it (ASGI)."""

    def __init__(self, scope: Scope, receive: Receive):
        self._receive = receive
        named = dict(scope["headers"])
        self.is_left = scope["type"] == "http" and (
            b"transfer-encoding" in named or named.get(b"content-length", b"0").strip(b"0") != b""
        )
        self._is_held_back = named.get(b"expect", b"").lower() == b"100-continue"  # until it is asked for

    async def receive(self) -> Message:
        """Pass on the next message (ASGI)."""
        self._is_held_back = False
        message = await self._receive()
        if not message.get("more_body", False):
            self.is_left = False
        return message

    async def drop(self) -> None:
        """Read on until the body ends, the client leaves, or there is too much of it."""
        dropped = 0
        try:
            async with asyncio.timeout(SECONDS):
                while self.is_left and not self._is_held_back and dropped < MOST:
                    dropped += len((await self.receive()).get("body", b""))
        except TimeoutError:
            pass
