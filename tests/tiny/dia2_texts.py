"""Texts of Dia2 whose inputs are given, whatever their actions are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tts_core.dia2.inputs import Dia2Sampling
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import BatchText, TextInputs


@dataclass(eq=False)
class GivenText(TextInputs):
    """A text without a run.

    steps: inputs of its steps, (2 + Q,) each; the last one is repeated.
    before: of a prefix, (P, 2 + Q).  start: position of the first step.
    actions: taken so far.
    """

    steps: Sequence[np.ndarray]
    sampling: Dia2Sampling
    noise: Noise
    before: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    start: int = 0
    answers: tuple[int, int] = (5, 3)
    actions: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return 1 + self.sampling.is_guided

    @property
    def positions(self) -> int:
        return len(self.before)

    def given(self, text: BatchText) -> np.ndarray:
        tokens = self.steps[min(text.steps, len(self.steps) - 1)]
        return np.append(np.int32(self.start + text.steps), tokens).astype(np.int32)

    def answer(self, action: int) -> tuple[int, int]:
        self.actions.append(action)
        return self.answers
