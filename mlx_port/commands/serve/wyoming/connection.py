"""One connection of the Wyoming port: describe, synthesize, and text that streams in.

synthesize                                    audio-start, audio-chunk ..., audio-stop
synthesize-start, -chunk ..., -stop           the same while text arrives, then synthesize-stopped
describe, ping                                info, pong
Between start and stop `synthesize` is skipped: Home Assistant sends the whole text there for older servers.
"""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from typing import TypeVar, cast

from anyio import to_thread
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event
from wyoming.info import Describe
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeStopped

from mlx_port.commands.serve.body import read_live, read_speech
from mlx_port.commands.serve.errors import ApiError, api_error, invalid, log_cause
from mlx_port.commands.serve.flow import PCM_RATE, Flow
from mlx_port.commands.serve.live.flow import LiveFlow
from mlx_port.commands.serve.service import Service
from mlx_port.commands.serve.wyoming.events import read_event
from mlx_port.commands.serve.wyoming.info import describe, fields_of, language_of

Read = TypeVar("Read", bound=Eventable)
_FORMAT = {"rate": PCM_RATE, "width": 2, "channels": 1}


class Connection:
    """A client. One speech at a time; a further one waits for its end."""

    def __init__(self, service: Service, reader: StreamReader, writer: StreamWriter):
        self.service, self.limits = service, service.settings.limits
        self._reader, self._writer = reader, writer
        self._flow: LiveFlow | None = None  # whose text is arriving
        self._speech: asyncio.Task[None] | None = None

    @property
    def is_speaking(self) -> bool:
        """True while a speech is under way."""
        return self._speech is not None and not self._speech.done()

    async def run(self) -> None:
        """Serve the client until it leaves, or does something wrong."""
        with self.service.metrics.live.open("wyoming") as visit:
            try:
                if visit.number > self.limits.sockets:
                    raise ApiError(429, "server: too many connections; try again later", code="queue_full")
                visit.outcome = "left"
                await self._serve()
            except OSError:
                visit.outcome = "left"
            except Exception as error:
                visit.outcome = await self._refuse(error)
            finally:
                await self._stop()
                self._writer.transport.abort() if visit.outcome == "stalled" else self._writer.close()

    async def _serve(self) -> None:
        reading = asyncio.ensure_future(self._event())
        try:
            while True:
                waiting = {reading} if self._speech is None else {reading, self._speech}
                limit = self.limits.idle_seconds
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                if not done and (self._flow is not None or not self.is_speaking):
                    raise ApiError(408, f"event: none within {limit:g} s", code="timeout")
                if self._speech in done:
                    await self._spoken()
                if reading in done:
                    event = reading.result()
                    if event is None:
                        return
                    await self._handle(event)
                    reading = asyncio.ensure_future(self._event())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _event(self) -> Event | None:
        return await read_event(self._reader, self.limits.message)

    async def _handle(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._send(await to_thread.run_sync(describe, self.service))
        elif Ping.is_type(event.type):
            await self._send(Pong(text=_read(Ping, event).text))
        elif Synthesize.is_type(event.type):
            if self._flow is None:
                await self._speak(_read(Synthesize, event))
        elif SynthesizeStart.is_type(event.type):
            await self._begin(_read(SynthesizeStart, event))
        elif SynthesizeChunk.is_type(event.type):
            self._arriving(event).add(_text(_read(SynthesizeChunk, event).text))
        elif SynthesizeStop.is_type(event.type):
            self._arriving(event).end()
            self._flow = None

    async def _speak(self, event: Synthesize) -> None:
        await self._spoken()
        body = {"input": event.text, "response_format": "pcm", **self._voice(event)}
        flow = Flow(self.service, read_speech(body, self.limits))
        self._speech = asyncio.ensure_future(self._sound(flow))

    async def _begin(self, event: SynthesizeStart) -> None:
        if self._flow is not None:
            raise invalid("type", "synthesize-start: again before synthesize-stop", "wrong_order")
        await self._spoken()
        flow = LiveFlow(self.service, read_live(self._voice(event), self.limits))
        await flow.prepare()
        self._flow = flow
        self._speech = asyncio.ensure_future(self._stream(flow))

    def _voice(self, event: Synthesize | SynthesizeStart) -> dict[str, str]:
        """Read the client's voice, or its language, which it gives where it names no voice."""
        if event.voice is None:
            return {}
        name, language = (_text(given or "") for given in (event.voice.name, event.voice.language))
        return fields_of(name) if name else language_of(self.service, language)

    def _arriving(self, event: Event) -> LiveFlow:
        if self._flow is None:
            raise invalid("type", f"{event.type}: before synthesize-start", "wrong_order")
        return self._flow

    async def _spoken(self) -> None:
        """Wait for the end of the speech under way, if any. Raises its error."""
        if self._speech is not None:
            await self._speech
            self._speech = None

    async def _stream(self, flow: LiveFlow) -> None:
        await self._sound(flow)
        await self._send(SynthesizeStopped())

    async def _sound(self, flow: Flow) -> None:
        is_first = True
        try:
            async for data, _ in flow.frames():
                if is_first:
                    await self._send(AudioStart(**_FORMAT))
                    is_first = False
                if data:
                    await self._send(AudioChunk(**_FORMAT, audio=data))
            await self._send(AudioStop())
        finally:
            flow.close()

    async def _stop(self) -> None:
        if self._speech is not None:
            self._speech.cancel()
            await asyncio.gather(self._speech, return_exceptions=True)

    async def _refuse(self, error: Exception) -> str:
        """Tell the client of an error. Returns its code."""
        found = api_error(error)
        self.service.metrics.errors.labels(found.code).inc()
        log_cause("a speech over Wyoming broke off", error)
        if found.code != "stalled":
            with suppress(ApiError, OSError):
                await self._send(Error(text=found.message, code=found.code))
        return str(found.code)

    async def _send(self, event: Eventable) -> None:
        """Send an event. Raises ApiError 408 for a client that does not read, OSError for one that left."""
        try:
            async with asyncio.timeout(self.limits.stall_seconds):
                await async_write_event(event.event(), self._writer)
        except TimeoutError:
            message = f"client: nothing was read for {self.limits.stall_seconds:g} s"
            raise ApiError(408, message, code="stalled") from None


def _read(kind: type[Read], event: Event) -> Read:
    """Read the fields of an event. Raises ApiError 400."""
    try:
        return cast(Read, kind.from_event(event))
    except (KeyError, TypeError, AttributeError):
        message = f"event: {event.type:.40} has fields that cannot be read"
        raise invalid(None, message, "invalid_event") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise invalid("input", "text: not a string")
    return value
