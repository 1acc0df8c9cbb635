"""One speech on its way to a client: parts as they arrive in the event loop, encoded in other threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from anyio import to_thread

from mlx_port.commands.output import check_numbers
from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.fields import SpeechBody
from mlx_port.commands.serve.service import Service
from tts_core.audio.formats.writer import StreamEncoder
from tts_core.results import GenerationResult
from tts_core.serving.speech import Speech

PCM_RATE = 24000  # Hz; clients take pcm at this rate
FRAME = 1 << 14  # bytes of sound that are sent at a time, where a client's reading is watched


class Flow:
    """A speech that is submitted, waited for, encoded and, whatever happens, dropped by `close`."""

    def __init__(self, service: Service, body: SpeechBody):
        self.service, self.body = service, body
        self.arrived = time.perf_counter()
        self.speech: Speech | None = None
        self.encoder: StreamEncoder | None = None
        self._news = asyncio.Event()
        self._notice = _setter(asyncio.get_running_loop(), self._news)
        self._closed, self._seconds = False, 0.0
        self._first: GenerationResult | None = None
        self.warnings: tuple[str, ...] = ()  # of fields that are ignored; known after `submit`

    async def submit(self) -> None:
        """Queue the speech. Raises as Service.submit."""
        await to_thread.run_sync(self._submit)

    async def start(self) -> None:
        """Wait for the first sound. Raises the errors of the speech, and ApiError."""
        while self._first is None:
            part = await self._next()
            if part is None:
                seed = "" if self.seed is None else f", with seed {self.seed}; try another seed"
                raise ApiError(500, f"generation: the model ended before any sound{seed}", code="no_sound")
            if part.samples:
                self._first = part
        self.encoder = StreamEncoder(
            self.body.form, self._first.sample_rate, rate=self.rate, whole=self.body.whole
        )

    @property
    def rate(self) -> int | None:
        """Rate of the sound that is asked for, Hz; None for the model's."""
        return self.body.sample_rate or (PCM_RATE if self.body.form.name == "pcm" else None)

    @property
    def seed(self) -> int | None:
        """Seed of the speech; known after `start`."""
        return None if self.speech is None else self.speech.seed

    @property
    def expected_seconds(self) -> float:
        """Estimated duration of the speech; known after `submit`."""
        assert self.speech is not None
        return self.speech.request.seconds

    @property
    def seconds_left(self) -> float:
        """Seconds until the request's time is over; negative after that."""
        return self.arrived + self.service.settings.limits.request_seconds - time.perf_counter()

    async def encoded(self) -> AsyncIterator[tuple[bytes, GenerationResult | None]]:
        """Yield the encoded bytes of each part, maybe none, with the part; None with the last bytes.

        Raises the errors of the speech.
        """
        part, self._first = self._first, None
        while part is not None:
            assert self.encoder is not None
            yield await to_thread.run_sync(self.encoder.add, part.audio), part
            part = await self._next()
        assert self.encoder is not None
        yield await to_thread.run_sync(self.encoder.finish), None

    async def frames(self) -> AsyncIterator[tuple[bytes, GenerationResult | None]]:
        """Queue the speech and yield its sound, FRAME bytes at most at a time; each part comes with its last
        frame, which may be empty. Raises the errors of the speech.
        """
        await self.submit()
        await self.start()
        async for data, part in self.encoded():
            while len(data) > FRAME:
                yield data[:FRAME], None
                data = data[FRAME:]
            yield data, part

    def late(self) -> ApiError:
        """Build the error of a speech that is not complete in time."""
        seconds = self.service.settings.limits.request_seconds
        return ApiError(503, f"the speech is not complete after {seconds:g} s", code="timeout")

    def close(self) -> None:
        """Drop the speech if it has not ended, and the encoder, whose memory Python does not see."""
        self._closed = True
        self.encoder = None
        if self.speech is not None:
            self.speech.cancel()

    def _submit(self) -> None:
        """Keep the speech at once: a request that is abandoned meanwhile must not leave it behind."""
        self.speech = self._queued()
        if self._closed:
            self.speech.cancel()

    def _queued(self) -> Speech:
        order = self.service.order(self.body)
        self.warnings = order.warnings
        return self.service.queue(order, self._notice)

    async def _next(self) -> GenerationResult | None:
        """Return the next part; None after the last."""
        limits = self.service.settings.limits
        assert self.speech is not None
        try:
            async with asyncio.timeout(self.seconds_left):
                while True:
                    self._news.clear()
                    try:
                        part = self.speech.get(timeout=0)
                        break
                    except TimeoutError:
                        await self._news.wait()
        except TimeoutError:
            raise self.late() from None
        if part is None:
            return None
        check_numbers(part)
        self._seconds += part.audio_seconds
        if self._seconds > limits.audio_seconds:
            message = f"the speech is longer than {limits.audio_seconds:g} s; send less text"
            raise ApiError(400, message, param="input", code="too_long")
        return part


def _setter(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> Callable[[Speech], None]:
    """Return a callback for any thread. It does not hold the flow: in a circle, encoders would live on."""

    def notice(speech: Speech) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(news.set)

    return notice
