"""Dia2's slots: texts that share the steps of one network, and the interface of every form of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tts_core.dia2.config import Dia2Config
from tts_core.dia2.sampling import Dia2Sampling
from tts_core.nn.noise import Noise


@dataclass(frozen=True, eq=False)
class Dia2Joining:
    """A text that takes a slot.

    before: (P, 2 + Q) int32, the inputs of a prefix's steps, at positions 0 .. P-1; none without a prefix.
    start: position of its first step; the ones after it follow. With a prefix it is P - 1 for the second
    time, so a text has read P + n steps before its n-th.
    noise: of step n, in the shape of `noise_shape`.
    """

    before: np.ndarray
    start: int
    sampling: Dia2Sampling
    noise: Noise

    def uniform(self, step: int, config: Dia2Config) -> np.ndarray:
        """Return the numbers of a step, as `noise_shape` says; 0.5 if none is used."""
        shape = noise_shape(config)
        return np.full(shape, 0.5, np.float32) if self.sampling.is_greedy else self.noise.uniform(step, shape)


@dataclass(eq=False)
class Dia2Text:
    """A text in progress. steps: that it has run."""

    joining: Dia2Joining
    steps: int = 0

    @property
    def rows(self) -> int:
        """Rows of the batch: the conditional one and, with guidance, the unconditional one after it."""
        return 1 + self.joining.sampling.is_guided

    @property
    def length(self) -> int:
        """Keys that it has, and the row that its next step writes."""
        return len(self.joining.before) + self.steps


def noise_shape(config: Dia2Config) -> tuple[int, int]:
    """Shape of a step's numbers: for the action, then for each stream, of which the first ids' are used."""
    return 1 + config.n_streams, max(config.audio_vocab_size, config.action_vocab_size)


class Dia2Slots(Protocol):
    """A running batch of the network, on either side. A step is `act`, `draw` and, later, `read`.

    Texts of which `act` hears nothing stay where they are. Between `draw` and `read` the next step may act,
    and texts may join and leave.
    """

    def join(self, slot: int, text: Dia2Joining) -> None:
        """Read a text's prefix and let it begin with the next step; its slot must be free."""
        ...

    def leave(self, slot: int) -> None:
        """Free a slot. Unknown ones do nothing."""
        ...

    def act(self, inputs: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Run a step of the transformer, and wait for the actions.

        inputs: by slot, (2 + Q,) int32; FREE stands for the code that the slot drew in the step before, in
        which it then took part. Returns actions by slot, -1 where logits were not all finite.
        """
        ...

    def draw(self, texts: Mapping[int, tuple[int, int]]) -> Any:
        """Draw the step's codes; waits for nothing. Returns what `read` reads.

        texts: the machine's answers, by the slots of `act`: new ids of both text streams.
        """
        ...

    def read(self, drawn: Any) -> dict[int, np.ndarray]:
        """Wait for codes. → (Q,) int32 by slot, -1 where logits were not all finite."""
        ...
