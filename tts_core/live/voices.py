"""The voices of a speech whose text arrives in pieces: each piece is spoken in those of the pieces before."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tts_core.pipeline import PromptLike


class Voices(Protocol):
    """A model's way to keep its voices from piece to piece; `voices` of its `request.py` builds one from a
    prompt.
    """

    def next(self, text: str) -> tuple[str, PromptLike]:
        """Return the next piece as it is to be read, and the prompt that it follows."""
        ...

    def spoken(self, codes: np.ndarray) -> None:
        """Note the codes of that piece, (Q, T) int32, once it is spoken."""
        ...


class SameVoices(Voices):
    """The voices of a model that takes them from the prompt, or has its own."""

    def __init__(self, prompt: PromptLike):
        self._prompt = prompt

    def next(self, text: str) -> tuple[str, PromptLike]:
        return text, self._prompt

    def spoken(self, codes: np.ndarray) -> None: ...
