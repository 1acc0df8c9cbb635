"""Requests of a model: the facts that they are checked by. No network runs here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol, Self

from tts_core.config import Configs
from tts_core.errors import UsageError
from tts_core.models import Documents
from tts_core.pipeline import PromptLike
from tts_core.speaking.given import given_texts
from tts_core.speaking.live import LiveText, SameVoices, Voices


class RequestFacts(Protocol):
    """The facts about a model that its requests need. Methods raise UsageError naming the argument."""

    @classmethod
    def of(cls, configs: Configs, documents: Documents) -> Self:
        """Read the facts from configurations and documents of a model's parts, by kind."""
        ...

    def request(self, text: str, options: Any, prompt: PromptLike) -> Any:
        """Check one text with its options and prompt, and cut a long one into pieces."""
        ...

    def requests(
        self,
        texts: Sequence[str],
        options: Any,
        prompts: PromptLike | Sequence[PromptLike],
        *,
        exactly: bool = False,
    ) -> Sequence[Any]:
        """Check several texts; messages name the text's position.

        prompts, and the options seed, max_frames and noise: one for all, or one per text.
        exactly: read them as given, without preparing them.
        """
        options = replace(options, as_written=True) if exactly else options
        given = given_texts(texts, options, prompts)
        return [self.request(request.text, request.options, request.prompt) for request in given]

    def live(self, text: str | None, options: Any, prompt: PromptLike) -> Any:
        """Check the beginning of a text that goes on. text: None checks all of it but the text."""
        whole = LiveText(self.request, options, self.voices(prompt))
        return whole if text is None else whole.begun(text)

    def voices(self, prompt: PromptLike) -> Voices:
        """Keep the voices of a text that goes on, sentence by sentence."""
        return SameVoices(prompt)

    def rehearsal(self) -> Any:
        """Build a short request that runs all kernels, for a warm-up."""
        ...


class WholeRequest:
    """A request whose text does not go on."""

    is_open = False

    def opened(self) -> NoReturn:
        """Raise UsageError for text that is to follow."""
        raise UsageError("text: this model reads its text at once; give all of it")
