"""Responses that stream a speech, as bytes or as server-sent events."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mlx_port.commands.serve.backlog import Backlog
from mlx_port.commands.serve.choose import warnings
from mlx_port.commands.serve.errors import api_error, log_break
from mlx_port.commands.serve.flow import FRAME, Flow
from mlx_port.commands.serve.pieces import SpeechPieces, timed
from tts_core.printable import json_text

_LOG = logging.getLogger("mlx_port.serve")
Made = TypeVar("Made")


NOBODY = Response(status_code=499)  # for a client that has left; nobody reads it


class GoneError(Exception):
    """The client has closed its connection."""


async def unless_gone(receive: Receive, work: Awaitable[Made]) -> Made:
    """Do work as long as the client is there. Raises GoneError when it leaves, once the work is cancelled."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def answered(request: Request, work: Awaitable[None], flows: Sequence[Flow], answer: ASGIApp) -> Any:
    """Return an answer once work is done; NOBODY if the client leaves. Without one, the flows are dropped."""
    try:
        await unless_gone(request.receive, work)
    except GoneError:
        close(flows)
        return NOBODY
    except BaseException:
        close(flows)
        raise
    return answer


def close(flows: Sequence[Flow]) -> None:
    """Drop all that have not ended."""
    for flow in flows:
        flow.close()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class SpeechResponse:
    """The response of one speech whose first sound is there.

    An error from here on cuts the connection: no client takes half a speech for a whole one. A client may
    read more slowly than the speech is made, until the request's time is over; one that reads nothing is cut
    off by its connection. With `stream` false it is complete before it begins: any error is an answer.
    """

    def __init__(self, flow: Flow):
        self.flow, self._whole = flow, b""

    async def begin(self) -> None:
        """Queue the speech; wait for its first sound, or for all of it. Raises the errors of the speech."""
        await self.flow.submit()
        await self.flow.start()
        if self.flow.body.whole:
            self._whole = b"".join([data async for data, _ in self.flow.encoded()])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the speech (ASGI)."""
        try:
            await unless_gone(receive, self._in_time(send))
        except GoneError:
            _LOG.info("the client has left; its speech is dropped")
        except Exception as error:
            self.flow.service.metrics.errors.labels(api_error(error).code).inc()
            log_break("a speech broke off", error)
        finally:
            self.flow.close()

    async def _in_time(self, send: Send) -> None:
        try:
            async with asyncio.timeout(self.flow.seconds_left):
                await self._send(send)
        except TimeoutError:
            raise self.flow.late() from None

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers()})
        if self.flow.body.whole:
            await send(body_message(self._whole, more=False))
            return
        with Backlog() as backlog:
            pieces = self._events() if self.flow.body.sse else self._bytes()
            filling = asyncio.ensure_future(backlog.fill(pieces))
            try:
                async for frame in backlog.frames(FRAME):
                    await send(body_message(frame, more=True))
                await filling
            finally:
                filling.cancel()
                await asyncio.gather(filling, return_exceptions=True)
        await send(body_message(b"", more=False))

    def _headers(self) -> list[tuple[bytes, bytes]]:
        encoder = self.flow.encoder
        assert encoder is not None
        kind = "text/event-stream; charset=utf-8" if self.flow.body.sse else encoder.media_type
        named = {"content-type": kind, "cache-control": "no-store", "x-sample-rate": str(encoder.rate)}
        if self.flow.seed is not None:
            named["x-seed"] = str(self.flow.seed)
        named["x-expected-seconds"] = f"{self.flow.expected_seconds:.1f}"
        if self.flow.body.whole:
            named["content-length"] = str(len(self._whole))
        said = [(name.encode(), value.encode()) for name, value in named.items()]
        return said + warnings(self.flow.warnings)

    async def _bytes(self) -> AsyncIterator[bytes]:
        async for data, _ in self.flow.encoded():
            yield data

    async def _events(self) -> AsyncIterator[bytes]:
        """An event a part of the sound, an event a word where the model times them, an event a piece if they
        are asked for, after its sound, and one with the usage.
        """
        pieces = SpeechPieces(self.flow.service, self.flow.body)
        async for data, part in self.flow.encoded():
            for word in () if part is None else part.words:
                yield _event({"type": "speech.audio.word", **timed(word)})
            if data:
                yield _event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
            if part is not None and self.flow.body.pieces:
                for piece in pieces.ended(part):
                    yield _event({"type": "speech.audio.piece", **piece})
        yield _event({"type": "speech.audio.done", "usage": usage(self.flow)})


def usage(flow: Flow) -> dict[str, int]:
    """Count bytes of text and decoder rows, in OpenAI's words."""
    assert flow.speech is not None
    given, made = len(flow.body.input.encode()), flow.speech.token_count
    return {"input_tokens": given, "output_tokens": made, "total_tokens": given + made}


def _event(content: dict[str, Any]) -> bytes:
    return f"data: {json_text(content, indent=None)}\n\n".encode()


def body_message(data: bytes, *, more: bool) -> Message:
    """Build a piece of a response's body (ASGI)."""
    return {"type": "http.response.body", "body": data, "more_body": more}
