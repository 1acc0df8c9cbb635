"""Texts that share a running batch: the rows of each, where they are, and what the next step takes of them.

All of it is known to the host before the ids are: numbers of steps that ran, no ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from tts_core.nn.noise import Noise
from tts_core.speaking.running import WAITED


class TextInputs(Protocol):
    """What a model's text brings to its running batch; besides, what its decoder reads.

    sampling: numbers that its draws take.
    rows: of the network that it takes, with those of guidance.
    ids: of its text, which go with its steps.
    more: further ids come, by `feed`.
    """

    sampling: Any
    noise: Noise
    rows: int = 1
    ids: Sequence[int] = ()
    more: bool = False

    @property
    def positions(self) -> int:
        """Keys that are read before its first step."""
        ...

    def given(self, text: BatchText) -> Sequence[int] | None:
        """Return the host's numbers for the next step; None if the text waits for them."""
        return ()

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the random numbers of a draw, float32."""
        return self.noise.uniform(step, shape)


@dataclass(eq=False)
class BatchText:
    """A text in a slot.

    rows: its own, those of guidance after the first.
    ids, more: as of its inputs, with those that were fed.
    steps: that it has drawn.
    first: draws that reading it was enough for: 0 or 1.
    """

    inputs: Any
    rows: list[int]
    ids: list[int]
    more: bool
    steps: int = 0
    first: int = 0

    @property
    def waits(self) -> bool:
        """True if what its next step takes has not come."""
        return self.inputs.given(self) is None


class Launched(NamedTuple):
    """Steps that run. reading: of their ids.  waiting: slots of texts that take no part."""

    reading: Any
    waiting: list[int]

    def ids(self, read: np.ndarray) -> np.ndarray:
        """Mark them in the ids that were read, (steps, texts, ...)."""
        if self.waiting:
            read = read.copy()
            read[:, self.waiting] = WAITED
        return read


@dataclass(eq=False)
class BatchRows:
    """Slots of at most `places` texts of at most `room` positions.

    rows: in all; None if each text has one, that of its slot.
    """

    places: int
    room: int
    rows: int | None = None
    texts: dict[int, BatchText] = field(default_factory=dict)  # by slot

    def join(self, slot: int, inputs: TextInputs) -> BatchText:
        """Give a free slot to a text, and its rows: the lowest free ones."""
        assert slot not in self.texts
        assert 0 <= slot < self.places
        rows = [slot]
        if self.rows is not None:
            taken = {row for text in self.texts.values() for row in text.rows}
            rows = [row for row in range(self.rows) if row not in taken][: inputs.rows]
            assert len(rows) == inputs.rows, "its rows are free"
        self.texts[slot] = BatchText(inputs, rows, [*inputs.ids], inputs.more)
        return self.texts[slot]

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does."""
        text = self.texts[slot]
        text.ids += ids
        text.more = more

    def leave(self, slot: int) -> None:
        """Free a slot and its rows."""
        del self.texts[slot]

    def advance(self) -> None:
        """Count the step of every text that does not wait."""
        for slot in self.drawing:
            self.texts[slot].steps += 1

    @property
    def can_step(self) -> bool:
        """True if a text does not wait."""
        return len(self.waiting) < len(self.texts)

    @property
    def waiting(self) -> list[int]:
        """Slots of texts that wait."""
        return [slot for slot, text in self.texts.items() if text.waits]

    @property
    def drawing(self) -> list[int]:
        """Slots of texts that do not wait, in order."""
        return sorted(slot for slot, text in self.texts.items() if not text.waits)

    @property
    def count(self) -> int:
        """Slots in use: up to the last one that is taken."""
        return 1 + max(self.texts, default=-1)

    @property
    def row_count(self) -> int:
        """Rows in use: up to the last one of a text."""
        return 1 + max((row for text in self.texts.values() for row in text.rows), default=-1)

    def positions(self) -> np.ndarray:
        """Return where each row is written next, (R,) int32. A text past its end stays at its last position;
        one that waits, or that draws from what was read, writes nothing of use to its next one.
        """
        places = {slot: self._place(text) for slot, text in self.texts.items()}
        alike = len(set(places.values())) == 1  # then free rows are too, and no mask is needed
        found = np.full(self.row_count, next(iter(places.values())) if alike else 0, np.int32)
        for slot, place in places.items():
            found[self.texts[slot].rows] = place
        return found

    @property
    def wanted_rows(self) -> int:
        """Rows to have memory for: a power of two, or all."""
        return min(1 << (self.row_count - 1).bit_length(), self.rows or self.places)

    def given(self) -> np.ndarray:
        """Return the host's numbers for the next step, (slots in use, n) int32; zeros for texts without."""
        numbers = {slot: text.inputs.given(text) for slot, text in self.texts.items()}
        found = np.zeros((self.count, max(len(own or ()) for own in numbers.values())), np.int32)
        for slot, own in numbers.items():
            if own is not None:
                found[slot] = own
        return found

    def draws(self) -> Draws:
        """Return what the next draws go by."""
        found = Draws([None] * self.count, np.zeros(self.count, np.int32))
        for slot in self.drawing:
            text = self.texts[slot]
            found.settings[slot], found.steps[slot] = text.inputs.sampling, text.steps
        return found

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return random numbers for the next draws, (slots in use, *shape) float32; 0.5 where none draws."""
        found = np.full((self.count, *shape), 0.5, np.float32)
        for slot in self.drawing:
            text = self.texts[slot]
            found[slot] = text.inputs.uniform(text.steps, shape)
        return found

    def _place(self, text: BatchText) -> int:
        return min(text.inputs.positions + max(0, text.steps - text.first), self.room - 1)


class Draws(NamedTuple):
    """The draws of a step, by slot. settings: None for a text without one.  steps: (N,), drawn before."""

    settings: list[Any]
    steps: np.ndarray

    def groups(self) -> dict[Any, list[int]]:
        """Group slots by equal settings."""
        found: dict[Any, list[int]] = {}
        for slot, settings in enumerate(self.settings):
            if settings is not None:
                found.setdefault(settings, []).append(slot)
        return found
