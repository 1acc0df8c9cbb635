"""Text that comes while it is spoken, for models that read a text at once: sentence by sentence."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from tts_core.audio.delivery import Pacing
from tts_core.errors import UsageError
from tts_core.nn.noise import piece_seed
from tts_core.pipeline import PromptLike
from tts_core.speaking.speech import All, MoreText, Sound, Speech
from tts_core.text import breaks
from tts_core.text.arriving import count_spoken


class Voices(Protocol):
    """A model's way to keep its voices from sentence to sentence."""

    def next(self, text: str) -> tuple[str, PromptLike]:
        """Return the next sentence as it is to be read, and the prompt that it follows."""
        ...

    def spoken(self, codes: np.ndarray) -> None:
        """Note the codes of that sentence, (Q, T) int32, once it is spoken."""
        ...


class SameVoices(Voices):
    """The voices of a model that takes them from the prompt, or has its own."""

    def __init__(self, prompt: PromptLike):
        self._prompt = prompt

    def next(self, text: str) -> tuple[str, PromptLike]:
        return text, self._prompt

    def spoken(self, codes: np.ndarray) -> None: ...


class LiveText:
    """A text that comes. Each of its sentences is a request of its own, with a seed derived from the first.

    ask: checks a sentence and builds its request, as Pipeline.request.
    options: of the model.
    Raises UsageError for options that one sentence cannot share with the next: max_frames, noise.
    """

    is_open = True

    def __init__(self, ask: Callable[[str, Any, PromptLike], Any], options: Any, voices: Voices):
        for name, other in (("max_frames", "max_seconds"), ("noise", "seed")):
            if getattr(options, name) is not None:
                raise UsageError(f"{name}: not for text that arrives in pieces; give {other}")
        self.seed: int = secrets.randbits(32) if options.seed is None else options.seed
        self.speed: float = options.speed
        self.most_seconds: float | None = options.max_seconds  # of the whole, at speed 1
        self._options = replace(options, max_seconds=None)
        self._ask, self._voices, self._sentences = ask, voices, 0
        self._rest = Pacing((), (None,), self.speed)  # silence after the last sentence

    pieces = ()

    @property
    def seconds(self) -> float:
        """Unknown."""
        return 0.0

    def begun(self, text: str) -> LiveText:
        """Return the same text with its first sentence. Raises UsageError for one that cannot be spoken."""
        self.first = self.next(text)
        self.pacing: Pacing = self.first.pacing
        return self

    def next(self, text: str) -> Any:
        """Build the request of the next sentence, once the one before is spoken.

        Returns None for a text of pauses or marks only, after the first. Raises UsageError.
        """
        if self._sentences and not count_spoken(text):
            silences = breaks.read("text", text).silences
            self._rest = self._rest.followed_by(Pacing((), (sum(silences) or None,)))
            return None
        said, prompt = self._voices.next(text)
        options = replace(self._options, seed=piece_seed(self.seed, self._sentences))
        self._sentences += 1
        return self._ask(said, options, prompt)

    def spoken(self, speak: Callable[[Any], Speech]) -> Speech:
        """Speak the sentences as they come, as one speech. speak: of a request."""
        request, pacing, ends = self.first, None, set[str]()
        while True:
            [(codes, reason)] = yield All([speak(request)], request, pacing)
            self._voices.spoken(codes)
            ends.add(reason)
            request = None
            while request is None:
                text = yield MoreText()
                if text is None:
                    yield Sound(codes[:, :0], 0, pacing=self._rest)
                    return "length" if "length" in ends else "stop"
                request = self.next(text)
            pacing, self._rest = self._rest.followed_by(request.pacing), Pacing((), (None,), self.speed)
