"""A run of Dia2 in the running batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tts_core.dia2.arriving import ArrivingEntries
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.sampling import Dia2Sampling
from tts_core.nn.noise import Noise
from tts_core.speaking.rows import BatchText, TextInputs


@dataclass(eq=False)
class Dia2Inputs(TextInputs):
    """A run, and the text that comes while it is spoken; None for one that was given whole.

    noise: of step n, in the shape of `noise_shape`.
    before: (P, 2 + Q) int32, inputs of the prefix's steps, at positions 0 .. P-1, once its words have come.
    error: of the host's part of a step.
    """

    run: Dia2Run
    text: ArrivingEntries | None
    sampling: Dia2Sampling
    noise: Noise
    before: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    error: Exception | None = None

    @property
    def rows(self) -> int:
        """Rows of the network: the conditional one and, with guidance, the unconditional one."""
        return 1 + self.sampling.is_guided

    @property
    def positions(self) -> int:
        """Steps that are read before the first one."""
        return len(self.before)

    def hear(self, text: str | None) -> None:
        """Take text that has come; None is its end. Raises UsageError for text that cannot be read."""
        if self.text is not None:
            self.text.hear(text)
        self.supply()

    def supply(self) -> None:
        """Give the run the words that its next step may need."""
        if self.text is not None:
            self.text.supply(self.run)

    def waits(self, text: BatchText) -> bool:
        """Return True if no step is left, or one whose words have not come."""
        return self.error is not None or not self.run.has_step or self.run.waits

    def given(self, text: BatchText) -> np.ndarray:
        """Return the position of the next step, and its inputs, (3 + Q,) int32. A prefix's last step is run
        again, after itself, at its own position.
        """
        return np.append(np.int32(self.run.step), self.run.tokens())

    def answer(self, action: int) -> tuple[int, int]:
        """Take a step's action; returns the new ids of both text streams."""
        texts = self.run.act(action)
        self.supply()
        return texts

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the numbers of a step; 0.5 if none is used."""
        return np.full(shape, 0.5, np.float32) if self.sampling.is_greedy else self.noise.uniform(step, shape)


def noise_shape(config: Dia2Config) -> tuple[int, int]:
    """Shape of a step's numbers: for the action, then for each stream, of which the first ids' are used."""
    return 1 + config.n_streams, max(config.audio_vocab_size, config.action_vocab_size)
