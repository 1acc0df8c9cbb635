"""The ids of one text while they are generated: the prompt, what was drawn, and why it ended."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary


class CodecSequence:
    """Grows by `accept` until the end is drawn or `max_len` ids, prompt included, are there."""

    def __init__(self, prompt: CodecPrompt, vocabulary: CodecVocabulary, max_len: int):
        self.prompt, self.vocabulary, self.max_len = prompt, vocabulary, max_len
        self.generated: list[int] = []
        self.ended = False

    @property
    def room(self) -> int:
        """How many ids may be drawn in all."""
        return max(0, self.max_len - len(self.prompt.tokens))

    @property
    def done(self) -> bool:
        """Whether nothing more is to be drawn."""
        return self.ended or len(self.generated) >= self.room

    @property
    def finish_reason(self) -> Literal["stop", "length"] | None:
        """Why it ended; None while it goes on."""
        if self.ended:
            return "stop"
        return "length" if self.done else None

    @property
    def ids(self) -> np.ndarray:
        """Prompt and generated ids, without the end. (N,) int32."""
        return np.concatenate([self.prompt.tokens, np.array(self.generated, dtype=np.int32)])

    def accept(self, drawn: int) -> None:
        """Take what was drawn next."""
        if drawn == self.vocabulary.end:
            self.ended = True
        else:
            self.generated.append(drawn)

    def codes(self) -> np.ndarray:
        """Codes of the first codebook so far, as `CodecVocabulary.codes` reads them. (T,) int32."""
        return self.vocabulary.codes(self.ids, first=self.prompt.first_code)
