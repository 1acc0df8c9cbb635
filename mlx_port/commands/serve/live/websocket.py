"""WS /v1/audio/speech/stream: text in while sound goes out.

The client sends JSON: start with the fields of a speech, text as often as it likes, then end, or cancel.
The server answers started, binary frames of sound, a word or a piece of the text where its time is known, and
done or error, and closes. One connection is one speech.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send

from mlx_port.commands.serve.body import read, read_live
from mlx_port.commands.serve.errors import ApiError, api_error, invalid, log_cause
from mlx_port.commands.serve.guard import is_key
from mlx_port.commands.serve.live.flow import LiveFlow
from mlx_port.commands.serve.live.messages import CLOSING, LeftError, Messages
from mlx_port.commands.serve.service import Service
from tts_core.errors import CancelledError
from tts_core.printable import json_text

_CODES = {401: 1008, 413: 1009, 429: 1013, 503: 1013}  # of a close, by an error's status
ENDED, AWAY = 1000, 1001


class LiveSpeech:
    """The route, as an ASGI application."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection (ASGI)."""
        await _Connection(scope, receive, send).run()


class _Connection:
    def __init__(self, scope: Scope, receive: Receive, send: Send):
        self.service: Service = scope["app"].state.service
        self.limits = self.service.settings.limits
        self.messages = Messages(receive, self.limits)
        self.flow: LiveFlow | None = None
        self._scope, self._receive, self._asgi_send = scope, receive, send

    async def run(self) -> None:
        """Speak to the end, whatever happens."""
        live = self.service.metrics.live
        with live.open("websocket") as visit:
            if visit.number > self.limits.sockets:
                busy = ApiError(429, "server: too many connections; try again later", code="queue_full")
                visit.outcome = str(busy.code)
                await busy.response()(self._scope, self._receive, self._asgi_send)
                return
            await self._receive()  # websocket.connect
            await self._asgi_send({"type": "websocket.accept"})
            try:
                visit.outcome = await self._talk()
            except LeftError:
                visit.outcome = "left"
            except asyncio.CancelledError:  # by the server, whose time to drain is over
                visit.outcome = await self._refuse(CancelledError())
            except Exception as error:
                visit.outcome = await self._refuse(error)
            finally:
                if self.flow is not None:
                    self.flow.close()

    async def _talk(self) -> str:
        """Take the start, then listen and speak at once. Returns how it ended."""
        start = await self.messages.next(self.limits.start_seconds)
        if start["type"] != "start":
            if start["type"] == CLOSING:
                return await self._close(AWAY, "closing")
            raise invalid("type", f"type: {start['type']} before start; send start first", "wrong_order")
        self._check_key(start.pop("api_key", None))
        start.pop("type")
        self.flow = LiveFlow(self.service, read_live(start, self.limits))
        await self.flow.prepare()
        ignored = {"warnings": self.flow.warnings} if self.flow.warnings else {}
        await self._send(
            {"type": "started", "sample_rate": self.flow.rate, "seed": self.flow.seed, **ignored}
        )
        tasks = [
            asyncio.ensure_future(self._speak(self.flow)),
            asyncio.ensure_future(self._listen(self.flow)),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            reason = next(task.result() for task in tasks if task.done())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self.flow.close()
        await self._send({"type": "done", "finish_reason": reason})
        return await self._close(ENDED, reason)

    async def _listen(self, flow: LiveFlow) -> str:
        """Take messages until cancel, also after the end of the text."""
        while True:
            message = await self.messages.next(None if flow.is_complete else self.limits.idle_seconds)
            kind = message["type"]
            if kind == "start":
                raise invalid("type", "type: start again; open another connection", "wrong_order")
            checked: Any = None if kind == CLOSING else read(self.service.bodies.messages[kind], message)
            if kind == "text":
                flow.add(checked.text)
            elif kind == "end":
                flow.end()
            elif kind == "cancel":
                return "cancelled"

    async def _speak(self, flow: LiveFlow) -> str:
        """Send the sound with the times of words and pieces. Returns why the speech ended."""
        async for data, part in flow.frames():
            for word in () if part is None else part.words:
                await self._send({"type": "word", "text": word.text, "start": word.start})
            if data:
                await self._emit({"type": "websocket.send", "bytes": data})
            for cue in () if part is None else part.cues:
                await self._send({"type": "piece", "text": cue.text, "start": cue.start, "end": cue.end})
        assert flow.speech is not None
        return str(flow.speech.finish_reason)

    def _check_key(self, given: Any) -> None:
        """Raise ApiError 401 unless a header or this field of start gives the key; in constant time."""
        key = self.service.settings.access.api_key
        if key is None or self._scope["has_key"]:
            return
        if not isinstance(given, str) or not is_key(given, key):
            message = (
                "api key: missing or wrong; send it as api_key of start, or as Authorization: Bearer KEY"
            )
            raise ApiError(401, message, code="invalid_api_key")

    async def _refuse(self, error: Exception) -> str:
        """Send an error and close. Returns its code."""
        found = api_error(error)
        self.service.metrics.errors.labels(found.code).inc()
        log_cause("a live speech broke off", error)
        if found.code == "stalled":
            return "stalled"
        try:
            await self._send({"type": "error", **found.body()})
            return await self._close(
                _CODES.get(found.status, 1008 if found.status < 500 else 1011), str(found.code)
            )
        except Exception:  # the client has left meanwhile, or does not read
            return str(found.code)

    async def _close(self, code: int, outcome: str) -> str:
        await self._emit({"type": "websocket.close", "code": code})
        return outcome

    async def _send(self, content: dict[str, Any]) -> None:
        await self._emit({"type": "websocket.send", "text": json_text(content, indent=None)})

    async def _emit(self, event: dict[str, Any]) -> None:
        """Send an event. Raises ApiError 408 for a client that does not read, LeftError for one that left."""
        try:
            async with asyncio.timeout(self.limits.stall_seconds):
                await self._asgi_send(event)
        except TimeoutError:
            message = f"client: no sound was read for {self.limits.stall_seconds:g} s"
            raise ApiError(408, message, code="stalled") from None
        except (
            OSError,
            RuntimeError,
        ):  # RuntimeError: uvicorn has closed it, as for a frame that is too large
            raise LeftError from None
