"""A text of MARS5 in the running batch of the autoregressive network: its sampling, its ids, what it brings.

Source: a description of Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); none of its code was used.
Differs from upstream: a nucleus cut keeps all of several equal ids, independent of the order of a sort; ids
are drawn with the inverse cumulative distribution, from one number each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import CodecPrompt, CodecVocabulary
from tts_core.nn.noise import Noise
from tts_core.nn.sampling import Sampler
from tts_core.speaking.rows import BatchText, TextInputs

PENALTIES_ABOVE = 1  # generated ids: up to this many, repeats have no penalty
TYPICAL_OFF = 0.999  # a `typical_p` above it keeps all ids


@dataclass(frozen=True)
class Mars5Numbers:
    """Options by which the sampler draws."""

    freq_penalty: float
    presence_penalty: float
    temperature: float
    top_k: int
    top_p: float
    typical_p: float


SAMPLER = Sampler(
    Mars5Numbers,
    (
        "freq_penalty",
        "presence_penalty",
        "allowed_ids",
        "end_penalty",
        "temperature",
        "top_k",
        "top_p",
        "typical_p",
    ),
    pick="inverse",
)


def numbers(options: Mars5Options) -> Mars5Numbers:
    """Return the numbers by which the sampler draws; at temperature 0 it draws one of the best ids."""
    penalties = options.freq_penalty, options.presence_penalty
    if options.temperature == 0:
        return Mars5Numbers(*penalties, temperature=1, top_k=1, top_p=1, typical_p=1)
    typical_p = options.typical_p if options.typical_p <= TYPICAL_OFF else 1
    return Mars5Numbers(*penalties, options.temperature, options.top_k, options.top_p, typical_p)


def allowed_ids(vocabulary: int, lowest: int) -> np.ndarray:
    """Return which ids may be drawn: from `lowest` on. → (V,) bool."""
    return np.arange(vocabulary) >= lowest


def end_penalties(options: Mars5Options, expected: int, count: int) -> np.ndarray:
    """Compute the penalty on the end's logit after n generated ids, n = 0 .. count - 1. (count,) float32.

    expected: ending before this length is penalized.
    """
    missing = expected - np.arange(count)
    penalty = options.eos_penalty_factor * np.maximum(missing, 1.0) ** options.eos_penalty_decay
    return np.where(missing >= 0, penalty, 0.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Mars5Inputs(TextInputs):
    """A text that takes a slot. codes: (Q, P), the reference's.  noise: one number per draw."""

    prompt: CodecPrompt
    codes: np.ndarray
    options: Mars5Options
    noise: Noise

    @cached_property
    def sampling(self) -> Mars5Numbers:
        return numbers(self.options)

    @property
    def positions(self) -> int:
        """Count the speaker and the prompt."""
        return 1 + len(self.prompt.tokens)

    @property
    def room(self) -> int:
        """Most ids that may be drawn."""
        return self.options.max_len - len(self.prompt.tokens)

    @property
    def window(self) -> int:
        """Number of last ids whose repetition is penalized."""
        return min(self.options.rep_penalty_window, self.room)

    @cached_property
    def penalties(self) -> np.ndarray:
        """Penalties of the end by step, (room,) float32."""
        return end_penalties(self.options, self.prompt.expected_tokens, max(1, self.room))

    @staticmethod
    def steps(texts: Sequence[BatchText]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for the next draws, (N, 1) each: the place among the last ids, int32; the penalty of the
        end, float32; whether repeats are penalized.
        """
        rows = [
            (
                text.steps % text.inputs.window,
                text.inputs.penalties[min(text.steps, len(text.inputs.penalties) - 1)],
                text.steps > PENALTIES_ABOVE,
            )
            for text in texts
        ]
        kinds = zip(zip(*rows, strict=True), (np.int32, np.float32, np.bool_), strict=True)
        slots, penalties, repeats = (np.array(column, kind)[:, None] for column, kind in kinds)
        return slots, penalties, repeats


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
        position = len(self.prompt.tokens) + len(self.generated)
        self.generated.append(drawn)
        if self.max_codes is not None and position >= self.prompt.first_code:
            self._n_codes += len(self.vocabulary.codes(np.array([drawn])))

    def codes(self) -> np.ndarray:
        """Codes of the first codebook so far, as `CodecVocabulary.codes` reads them. (T,) int32.

        The last id may be several codes; those beyond `max_codes` are cut off.
        """
        return self.vocabulary.codes(self.ids, first=self.prompt.first_code)[: self.max_codes]
