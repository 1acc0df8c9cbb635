"""Messages of a client that sends text as it is written: bounded in size, rate and time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any

from starlette.types import Message, Receive

from mlx_port.commands.serve.body import parse
from mlx_port.commands.serve.errors import ApiError, invalid
from mlx_port.commands.serve.fields import MESSAGES
from mlx_port.commands.serve.settings import Limits
from tts_core.errors import did_you_mean

TYPES = ("start", *MESSAGES)
CLOSING = "websocket.closing"  # an event of our own: the server is shutting down


class LeftError(Exception):
    """The client has closed its connection."""


class Messages:
    """The messages of a connection, in order."""

    def __init__(self, receive: Receive, limits: Limits):
        self._receive, self._limits = receive, limits
        self._times: deque[float] = deque(maxlen=limits.message_rate)

    async def next(self, seconds: float | None) -> dict[str, Any]:
        """Wait for the next message, a JSON object with a `type` of TYPES, or CLOSING.

        seconds: at most; None waits for ever. Raises LeftError, and ApiError 400, 408, 413 and 429.
        """
        try:
            async with asyncio.timeout(seconds):
                return self._read(await self._receive())
        except TimeoutError:
            message = f"message: none within {seconds:g} s; send text, end or cancel"
            raise ApiError(408, message, code="timeout") from None

    def _read(self, event: Message) -> dict[str, Any]:
        if event["type"] == "websocket.disconnect":
            raise LeftError
        if event["type"] == CLOSING:
            return {"type": CLOSING}
        text = event.get("text")
        if text is None:
            raise invalid(None, "message: binary; send JSON as text", "invalid_message")
        now = time.monotonic()
        if len(self._times) == self._limits.message_rate and now - self._times[0] < 1:
            message = f"message: more than {self._limits.message_rate} in a second; send longer texts"
            raise ApiError(429, message, code="too_many_messages")
        self._times.append(now)
        if len(text) > self._limits.message:
            raise ApiError(413, f"message: more than {self._limits.message} bytes", code="too_large")
        message = parse(text, "message")
        kind = message.get("type")
        if kind not in TYPES:
            hint = did_you_mean(str(kind)[:40], TYPES) or f"there is {', '.join(TYPES)}"
            raise invalid("type", f"type: {kind!r:.40} is no message; {hint}", "unknown_type")
        return message
