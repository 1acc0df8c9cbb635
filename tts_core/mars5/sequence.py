"""The ids of one text during generation: prompt, drawn ids and finish reason."""

from __future__ import annotations

from typing import Literal

import numpy as np

from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary


class CodecSequence:
    """A sequence that grows by `accept` until the end is drawn or it has `max_len` ids or `max_codes` codes.

    max_len: prompt included.  max_codes: length of `codes`, the reference included; None is no limit.
    """

    def __init__(
        self,
        prompt: CodecPrompt,
        vocabulary: CodecVocabulary,
        max_len: int,
        max_codes: int | None = None,
    ):
        self.prompt, self.vocabulary, self.max_len, self.max_codes = prompt, vocabulary, max_len, max_codes
        self.generated: list[int] = []
        self.ended = False
        self._n_codes = 0  # counted only for max_codes
        if max_codes is not None:
            self._n_codes = len(vocabulary.codes(prompt.tokens, first=prompt.first_code))

    @property
    def room(self) -> int:
        """Most ids that may be drawn in total."""
        return max(0, self.max_len - len(self.prompt.tokens))

    @property
    def done(self) -> bool:
        """True once the sequence has ended."""
        full = self.max_codes is not None and self._n_codes >= self.max_codes
        return self.ended or full or len(self.generated) >= self.room

    @property
    def finish_reason(self) -> Literal["stop", "length"] | None:
        """The reason for the end; None while the sequence grows."""
        if self.ended:
            return "stop"
        return "length" if self.done else None

    @property
    def ids(self) -> np.ndarray:
        """Prompt and generated ids, without the end. (N,) int32."""
        return np.concatenate([self.prompt.tokens, np.array(self.generated, dtype=np.int32)])

    def accept(self, drawn: int) -> None:
        """Append a drawn id."""
        if drawn == self.vocabulary.end:
            self.ended = True
            return
        place = len(self.prompt.tokens) + len(self.generated)
        self.generated.append(drawn)
        if self.max_codes is not None and place >= self.prompt.first_code:
            self._n_codes += len(self.vocabulary.codes(np.array([drawn])))

    def codes(self) -> np.ndarray:
        """Codes of the first codebook so far, as `CodecVocabulary.codes` reads them. (T,) int32.

        The last id may be several codes; those beyond `max_codes` are cut off.
        """
        return self.vocabulary.codes(self.ids, first=self.prompt.first_code)[: self.max_codes]
