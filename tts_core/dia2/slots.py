"""Dia2's slots: texts that share the steps of one network, in which the host acts, and the interface of every
form of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tts_core.dia2.arriving import ArrivingEntries
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.run import Dia2Run
from tts_core.dia2.sampling import Dia2Sampling
from tts_core.nn.noise import Noise
from tts_core.speaking.running import WAITED, RunningBatch


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


@dataclass(eq=False)
class Dia2Inputs:
    """A run in a slot, with its text.

    text: that comes while it is spoken; None for one that was given whole.
    joining: once its prefix is read.
    error: of the host's part of a step.
    """

    run: Dia2Run
    text: ArrivingEntries | None
    joining: Dia2Joining | None = None
    error: Exception | None = None

    def hear(self, text: str | None) -> None:
        """Take text that has come; None is its end. Raises UsageError for text that cannot be read."""
        if self.text is not None:
            self.text.hear(text)
        self.supply()

    def supply(self) -> None:
        """Give the run the words that its next step may need."""
        if self.text is not None:
            self.text.supply(self.run)

    @property
    def can_step(self) -> bool:
        """True if a step is left whose words have come."""
        return self.error is None and self.run.has_step and not self.run.waits

    def act(self, action: int) -> tuple[int, int]:
        """Take a step's action; returns the new ids of both text streams."""
        texts = self.run.act(action)
        self.supply()
        return texts


@dataclass(frozen=True, eq=False)
class _Launched:
    """A step whose codes are not read yet. acted: actions by slot."""

    codes: Any
    acted: Mapping[int, int]


class Dia2Batch(RunningBatch):
    """The running batch of `Dia2Slots`. The host takes each step's actions between its two halves."""

    steps, ahead = 1, 1  # the next step acts before the codes of the last one are read

    def __init__(self, slots: Dia2Slots, places: int, streams: int):
        self.slots, self._shape = slots, (1, places, streams)
        self._texts: dict[int, Dia2Inputs] = {}

    @property
    def can_step(self) -> bool:
        return any(one.can_step for one in self._texts.values())

    def join(self, slot: int, text: Dia2Inputs) -> None:
        assert text.joining is not None, "its prefix is read first"
        self.slots.join(slot, text.joining)
        self._texts[slot] = text

    def leave(self, slot: int) -> None:
        self.slots.leave(slot)
        self._texts.pop(slot)

    def launch(self, steps: int) -> _Launched:
        acting = {slot: one for slot, one in self._texts.items() if one.can_step}
        actions = self.slots.act({slot: one.run.tokens() for slot, one in acting.items()})
        texts: dict[int, tuple[int, int]] = {}
        for slot, one in acting.items():
            try:
                texts[slot] = one.act(max(actions[slot], 0))
            except Exception as error:  # of this text only
                one.error, actions[slot] = error, -1
        return _Launched(self.slots.draw(texts), actions)

    def read(self, launched: _Launched) -> np.ndarray:
        """Wait for a launch. → (1, texts, Q) codes; the first is WAITED of a text that took no part."""
        found, codes = np.full(self._shape, WAITED, np.int32), self.slots.read(launched.codes)
        for slot, action in launched.acted.items():
            found[0, slot] = -1 if action < 0 else codes[slot]
        return found
