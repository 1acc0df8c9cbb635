"""Recordings shorter than a voice, as small networks read them."""

from __future__ import annotations

import numpy as np

from tts_core.prompt import Prompt, Reference


class Snippet(Reference):
    """A recording of any length and words: whether it can be a voice is not checked."""

    def samples(self, sample_rate: int, where: str = "prompt", *, shortest: float = 0) -> np.ndarray | None:
        return Reference(self.audio, sample_rate=self.sample_rate).samples(sample_rate, where, shortest=0)


def snippet(audio: np.ndarray, text: str | None = None) -> Prompt:
    return Prompt((Snippet(audio, text),))
