"""One speech whose text is still arriving: its pieces on their way in, its sound on the way out."""

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import replace

from anyio import to_thread

from mlx_port.commands.serve.choose import has_seed
from mlx_port.commands.serve.errors import invalid
from mlx_port.commands.serve.fields import SpeechBody
from mlx_port.commands.serve.flow import Flow
from mlx_port.commands.serve.service import Order, Service
from tts_core.serving.speech import Speech
from tts_core.text.arriving import Sentences, Words

PROBE = "Yes."  # every model speaks it: voice and options are checked with it, before any text has come
UTF_16 = ("utf-16", "surrogatepass")  # joins halves of surrogate pairs, and keeps single ones


class LiveFlow(Flow):
    """A flow that is fed with text: `prepare`, then `add` and `end`, and meanwhile `frames`."""

    def __init__(self, service: Service, body: SpeechBody):
        super().__init__(service, body)
        self._texts: deque[str] = deque()  # before the speech is queued
        self._length = 0  # characters so far
        self._half = ""  # first half of a surrogate pair, at the end of a fragment
        self.is_complete = False

    async def prepare(self) -> None:
        """Check all but the text, and choose the seed. Raises ApiError and UsageError naming the field."""
        self._order = await to_thread.run_sync(self._checked)
        self._cutter = Words() if self.service.engine.models[self._order.model].fed else Sentences()

    @property
    def seed(self) -> int | None:
        """Seed of the speech; known after `prepare`."""
        return self._order.options.get("seed")

    def add(self, text: str) -> None:
        """Take a fragment of text. Raises ApiError 400 for too much, or after the end."""
        if self.is_complete:
            raise invalid("input", "text: it has ended; open another connection for another text")
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        text = text[: len(text) - len(self._half)].encode(*UTF_16).decode(*UTF_16)
        self._length += len(text)
        most = self.service.settings.limits.text
        if self._length > most:
            raise invalid("input", f"text: more than {most} characters")
        self._texts += self._cutter.add(self._order.reads(text))
        self._pour()

    def end(self) -> None:
        """Take the end of the text; a second time does nothing."""
        if not self.is_complete:
            self.is_complete = True
            self._texts += [*self._cutter.add(self._half), *self._cutter.end()]
            self._pour()

    async def submit(self) -> None:
        """Wait for the first piece of text and queue it. Raises as Service.queue; ApiError for no words."""
        while not self._texts and not self.is_complete:
            self._news.clear()
            await self._news.wait()
        if not self._texts:
            raise invalid("input", "text: there are no words in it; write the words to speak")
        self._order = replace(self._order, text=self._texts.popleft())
        await super().submit()
        self._pour()

    def _checked(self) -> Order:
        order = self.service.order(self.body)
        self.warnings = order.warnings
        source = self.service.engine.models[order.model]
        if has_seed(source.model) and order.options.get("seed") is None:
            order = replace(order, options={**order.options, "seed": secrets.randbits(32)})
        source.live(PROBE, order.options, order.prompt)
        return order

    def _queued(self) -> Speech:
        ahead = self.service.settings.limits.ahead_seconds
        return self.service.queue(self._order, self._notice, more=True, ahead=ahead)

    def _pour(self) -> None:
        """Pass text on, once there is a speech that takes it."""
        self._news.set()
        if self.speech is None:
            return
        while self._texts:
            self.speech.feed(self._texts.popleft())
        if self.is_complete:
            self.speech.end()
