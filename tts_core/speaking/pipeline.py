"""The pipeline of models whose speech is a generator, but for their typed methods."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from tts_core.nn.calls import exclusive, exclusive_parts
from tts_core.pipeline import Callbacks, Progress, PromptLike
from tts_core.results import GenerationResult
from tts_core.serving.session import Session
from tts_core.speech.asked import each_text
from tts_core.speech.together import Single, log, streamed, together

Request = TypeVar("Request", bound=Any)  # a model's, with pieces, seconds, is_open and job


class SpeechPipeline(ABC, Generic[Request]):
    """A model over its sessions. name: of the model, for logs."""

    name: str
    engine: Any

    @abstractmethod
    def request(self, text: str, options: Any, prompt: PromptLike = None) -> Request:
        """Check a caller's arguments without running a network. Raises UsageError."""

    @abstractmethod
    def check_memory(self, job: Any) -> None:
        """Raise ResourceError, naming what would fit, unless a job fits in the free memory."""

    @abstractmethod
    def opened(self, places: int, job: Any, *, streamed: bool, sound: bool = True) -> Session:
        """Open a running batch.

        job: bounds each request that will join; None for any.
        streamed: False for speech that nobody hears before its end.
        sound: False for codes alone.
        """

    def speak(
        self,
        request: Request,
        *,
        progress: Callable[[Progress], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[GenerationResult]:
        """Stream the speech of a request. Raises ResourceError, at the call, for too little memory."""
        return self._speak(request, Callbacks(progress, cancel), is_streamed=True)

    def _speak(
        self, request: Request, watch: Callbacks, *, is_streamed: bool, text: Iterator[str] | None = None
    ) -> Iterator[GenerationResult]:
        """Speak one request. text: that is still to come. Checks the memory at the call."""
        log(self.name, request)
        self.check_memory(request.job())
        return self._parts(request, watch, is_streamed, text)

    @exclusive_parts
    def _parts(
        self, request: Request, watch: Callbacks, is_streamed: bool, text: Iterator[str] | None
    ) -> Iterator[GenerationResult]:
        """Yield a text's speech as it is decoded."""
        session = self.opened(1, request.job(), streamed=is_streamed)
        yield from streamed(session, request, watch, request.seconds, text)

    def _requests(
        self, texts: Sequence[str], options: Any, prompts: PromptLike | Sequence[PromptLike]
    ) -> list[Request]:
        """Check several texts. prompts: one for all, or one per text."""
        asked = each_text(texts, options, prompts)
        return [self.request(one.text, one.options, one.prompt) for one in asked]

    @exclusive
    def _together(
        self, asked: Sequence[Request], watch: Callbacks, *, sound: bool = True
    ) -> list[GenerationResult]:
        """Speak requests in one batch, each as soon as it fits; in their order.

        sound: False for codes alone.
        """
        jobs = [one.job() for one in asked]
        longest = replace(type(jobs[0]).together(jobs), texts=1)
        self.check_memory(longest)

        def session(texts: int) -> Session:
            return self.opened(texts, longest, streamed=False, sound=sound)

        lines = [Single(one) for one in asked]
        return together(session, lines, watch, sum(one.seconds for one in asked))
