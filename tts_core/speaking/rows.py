"""Texts that share a running batch: the place of each, and what the next step takes of them.

All of it is known to the host before the ids are: numbers of steps that ran, no ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from tts_core.nn.noise import HostNoise, Noise
from tts_core.nn.sentinels import Sentinel
from tts_core.nn.windows import ceil_power
from tts_core.speaking.running import WAITED


class TextInputs(Protocol):
    """What a model's text brings to its running batch; besides, what its decoder reads.

    sampling: numbers that its draws take.
    ids: of its text, which go with its steps.
    more: further ids come, by `feed`.
    error: of the host's part of a step.
    """

    sampling: Any
    noise: Noise
    ids: Sequence[int] = ()
    more: bool = False
    error: Exception | None = None

    @property
    def rows(self) -> int:
        """Rows of the network that it takes, with those of guidance."""
        return 1

    @property
    def positions(self) -> int:
        """Keys that are read before its first step."""
        ...

    @property
    def reads(self) -> int:
        """Positions that its reading computes, of all rows, in the network that has most."""
        return self.rows * self.positions

    def waits(self, text: BatchText) -> bool:
        """Return True if what its next step takes has not come."""
        return False

    def given(self, text: BatchText) -> Sequence[int] | np.ndarray:
        """Return the host's numbers for its next step."""
        return ()

    def answer(self, action: int) -> Sequence[int]:
        """Take the action of a step; returns the host's numbers for its draw."""
        raise AssertionError("its network has no actions")

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return the random numbers of a draw, float32."""
        return self.noise.uniform(step, shape)


@dataclass(eq=False)
class BatchText:
    """A text in a slot.

    read: positions that have keys from before its first step.
    ids, more: as of its inputs, with those that were fed.
    steps: that it has drawn.
    first: draws that reading it was enough for: 0 or 1.
    shapes: of its row in each array of the state, (1, ...).
    """

    inputs: Any
    ids: list[int]
    more: bool
    read: int
    steps: int = 0
    first: int = 0
    shapes: list[tuple[int, ...]] = field(default_factory=list)


class Launched(NamedTuple):
    """Steps that run.

    readings: of their ids.
    indices: by slot, of texts that take part.
    failed: slots of texts whose host part failed.
    """

    readings: Sequence[Any]
    indices: Mapping[int, int]
    failed: Sequence[int]

    def ids(self, read: np.ndarray, slots: int) -> np.ndarray:
        """Order by slot the ids that were read. (steps, places, ...) → (steps, slots, ...)."""
        if not self.failed and [*self.indices.items()] == [(slot, slot) for slot in range(slots)]:
            return read
        found = np.full((len(read), slots, *read.shape[2:]), WAITED, read.dtype)
        found[:, [*self.indices]] = read[:, [*self.indices.values()]]
        found[:, [*self.failed]] = Sentinel.MARK
        return found


class Draws(NamedTuple):
    """The draws of a step, by place, also of texts that wait. steps: (N,), drawn before."""

    settings: list[Any]
    steps: np.ndarray
    texts: Sequence[BatchText]


@dataclass(eq=False)
class BatchRows:
    """Slots of at most `slots` texts of at most `capacity` positions.

    is_fixed: places are slots. Otherwise texts have the first places, without gaps.
    is_exact: there is no memory for more places than texts.
    A step computes a row for each place, or two or three where a text has guidance: those after the first
    follow the first ones of all.
    """

    slots: int
    capacity: int
    is_fixed: bool = False
    is_exact: bool = False
    texts: dict[int, BatchText] = field(default_factory=dict)  # by slot
    order: list[int] = field(default_factory=list)  # slots by place, also of texts that left
    drawing: dict[int, BatchText] = field(default_factory=dict)  # by place, that take part in the step

    def __post_init__(self) -> None:
        self.order += range(self.slots * self.is_fixed)

    def join(self, slot: int, inputs: TextInputs) -> BatchText:
        """Give a free slot to a text, and the place after the last. Texts that left are closed."""
        assert slot not in self.texts
        assert 0 <= slot < self.slots
        self.texts[slot] = BatchText(inputs, [*inputs.ids], inputs.more, inputs.positions)
        if not self.is_fixed:
            self.order.append(slot)
            assert len(self.order) == len(self.texts)
        return self.texts[slot]

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does."""
        text = self.texts[slot]
        text.ids += ids
        text.more = more

    def leave(self, slot: int) -> None:
        """Free a slot; its place is there until `close`, or the last text leaves."""
        del self.texts[slot]
        if not self.texts and not self.is_fixed:
            self.order.clear()

    def close(self) -> dict[int, int]:
        """Close the places of texts that left. Returns those that others take, each with the place before."""
        used = [index for index, slot in enumerate(self.order) if slot in self.texts]
        holes = sorted(set(range(len(used))) - set(used))
        moved = dict(zip(holes, reversed(used), strict=False))
        self.order = [self.order[moved.get(index, index)] for index in range(len(used))]
        return moved

    @property
    def count(self) -> int:
        """Places."""
        return len(self.order)

    @property
    def has_gaps(self) -> bool:
        """True if texts left whose places are not closed."""
        return len(self.texts) < len(self.order)

    @property
    def copies(self) -> int:
        """Rows of a text."""
        return max((text.inputs.rows for text in self.texts.values()), default=1)

    def sizes(self) -> list[tuple[int, ...]]:
        """Return what the longest row has in each array of the state, without the axis of rows."""
        by_array = zip(*(text.shapes for text in self.texts.values()), strict=True)
        return [tuple(map(max, zip(*shapes, strict=True)))[1:] for shapes in by_array]

    def wanted(self, rows: int) -> int:
        """Return for how many places to have memory. rows: that have it now.

        Those of texts; in a batch without guidance, where others need not move, also a power of two.
        """
        if self.is_exact or self.copies > 1:
            return self.count
        return rows if rows >= self.count else min(ceil_power(self.count), self.slots)

    @property
    def can_step(self) -> bool:
        """True if a text does not wait."""
        return any(not text.inputs.waits(text) for text in self.texts.values())

    def begin(self) -> dict[int, int]:
        """Begin a step of the texts that do not wait. Returns their places by slot."""
        found = self._by_index()
        self.drawing = {index: text for index, text in found.items() if not text.inputs.waits(text)}
        return {self.order[index]: index for index in self.drawing}

    def end(self) -> None:
        """Count the step."""
        for text in self.drawing.values():
            text.steps += 1

    def positions(self) -> np.ndarray:
        """Return where each row is written next, (R,) int32. A text past its end stays at its last position;
        one that waits, or that draws from what was read, writes nothing of use to its next one.
        """
        found = [0] * self.count
        for index, text in self._by_index().items():
            found[index] = min(text.read + max(0, text.steps - text.first), self.capacity - 1)
        return np.array(found * self.copies, np.int32)

    def given(self) -> np.ndarray:
        """Return the host's numbers for the step, (N, n) int32; zeros for texts that wait."""
        numbers = [text.inputs.given(text) for text in self.drawing.values()]
        if len(numbers) == self.count:
            return np.array(numbers, np.int32)
        found = np.zeros((self.count, len(numbers[0])), np.int32)
        found[[*self.drawing]] = numbers
        return found

    def steps(self) -> np.ndarray:
        """Return how many steps each text has drawn, (N,) int32; -1 where it takes no part, or drew as it
        was read.
        """
        found = np.full(self.count, -1, np.int32)
        for index, text in self.drawing.items():
            found[index] = text.steps if text.steps >= text.first else -1
        return found

    def answer(self, actions: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Give texts their actions, (N,). Returns the host's numbers for their draws, (N, 2) int32, and the
        slots of those that failed.
        """
        found, failed = np.zeros((self.count, 2), np.int32), list[int]()
        for index, text in self.drawing.items():
            action = int(actions[index])
            try:
                found[index] = text.inputs.answer(max(action, 0))
            except Exception as error:  # of this text only
                text.inputs.error = error
            if action < 0 or text.inputs.error is not None:
                failed.append(self.order[index])
        return found, failed

    def draws(self) -> Draws:
        """Return what the next draws go by."""
        texts = [*self._by_index().values()]
        steps = np.array([text.steps for text in texts], np.int32)
        return Draws([text.inputs.sampling for text in texts], steps, texts)

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return random numbers for the next draws, (N, *shape) float32; 0.5 where none draws."""
        numbers = [text.inputs.uniform(text.steps, shape) for text in self.drawing.values()]
        if len(numbers) == self.count:
            return np.stack(numbers) if len(numbers) > 1 else numbers[0][None]
        found = np.full((self.count, *shape), 0.5, np.float32)
        found[[*self.drawing]] = numbers
        return found

    def seeds(self) -> tuple[list[int], list[int]] | None:
        """Return the seed and the step of each text's numbers; None where a source is not of the host."""
        texts = [*self._by_index().values()]
        noise = [text.inputs.noise for text in texts]
        seeds = [source.seed for source in noise if isinstance(source, HostNoise)]
        return (seeds, [text.steps for text in texts]) if len(seeds) == len(noise) else None

    def _by_index(self) -> dict[int, BatchText]:
        return {index: self.texts[slot] for index, slot in enumerate(self.order) if slot in self.texts}


def mapped(function: Callable[..., Any], *states: Any) -> Any:
    """Apply a function of arrays to states: NamedTuples of arrays, and of tuples of them."""
    first = states[0]
    if not isinstance(first, tuple):
        return function(*states)
    found = [mapped(function, *item) for item in zip(*states, strict=True)]
    return type(first)(*found) if hasattr(first, "_fields") else tuple(found)
