"""The texts of a running batch of Qwen3-TTS, each in a row: where it is, and what it draws with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from tts_core.nn.noise import Noise
from tts_core.qwen3.layout import TalkerInputs
from tts_core.qwen3.sampling import LEAST_FRAMES, Qwen3Sampling
from tts_core.speaking.running import WAITED


@dataclass(frozen=True, eq=False)
class Qwen3Joining:
    """The inputs of a text that takes a slot.

    speaker: (D,) float32, the vector of a recording.
    frames: (Q, F) int32, the codes of a recording.
    more: its text goes on: it waits where a frame has none yet.
    """

    layout: TalkerInputs
    sampling: Qwen3Sampling
    noise: Noise
    speaker: np.ndarray | None = None
    frames: np.ndarray | None = None
    more: bool = False

    @property
    def positions(self) -> int:
        """Positions that are read before speech."""
        return len(self.layout.text)

    def read_with(self, frames: int, padding: int) -> np.ndarray:
        """Return the text ids that are read with the first frames, (T,) int32. padding: the id after them."""
        trailing = self.layout.trailing[:frames]
        return np.array([*trailing, *[padding] * (frames - len(trailing))], np.int32)


class Launched(NamedTuple):
    """Steps that run. reading: of their codes.  waiting: slots of texts that did not take part."""

    reading: Any
    waiting: list[int]

    def codes(self, read: np.ndarray) -> np.ndarray:
        """Mark them in the codes that were read, (steps, texts, Q)."""
        if self.waiting:
            read = read.copy()
            read[:, self.waiting, 0] = WAITED
        return read


@dataclass(eq=False)
class Qwen3Text:
    """A text in a slot.

    more: it goes on.
    trailing: ids that go with its frames.
    step: frames drawn.
    """

    joining: Qwen3Joining
    more: bool
    trailing: list[int] = field(default_factory=list)
    step: int = 0

    @property
    def waits(self) -> bool:
        """True if the text that goes with the last frame has not come."""
        return self.more and self.step > len(self.trailing)


class Qwen3Group:
    """Rows that are drawn under the same rules. is_early: speech cannot end yet.  rows: (N,) int64."""

    def __init__(self, sampling: Qwen3Sampling, rows: list[int], *, is_early: bool):
        self.sampling, self.is_early, self.rows = sampling, is_early, np.array(rows)


class Qwen3BatchRows:
    """Slots of a batch, a row each; the rows in use are the first ones, free ones among them included."""

    def __init__(self, slots: int):
        self.slots = slots
        self.texts: dict[int, Qwen3Text] = {}

    @property
    def count(self) -> int:
        """Rows in use."""
        return max(self.texts, default=-1) + 1

    def join(self, slot: int, joining: Qwen3Joining) -> None:
        """Put a text into a free slot."""
        self.texts[slot] = Qwen3Text(joining, joining.more, [*joining.layout.trailing])

    def feed(self, slot: int, ids: Sequence[int], *, more: bool) -> None:
        """Append ids to a text that goes on. more: it still does."""
        text = self.texts[slot]
        text.trailing += ids
        text.more = more

    @property
    def can_step(self) -> bool:
        """True if a text does not wait."""
        return len(self.waiting) < len(self.texts)

    @property
    def waiting(self) -> list[int]:
        """Slots of texts that wait."""
        return [slot for slot, text in self.texts.items() if text.waits]

    def leave(self, slot: int) -> None:
        """Free a slot."""
        del self.texts[slot]

    def advance(self) -> None:
        """Count the frame that every text has drawn which does not wait."""
        for text in self.texts.values():
            text.step += not text.waits

    def begun(self) -> np.ndarray:
        """Return which rows have drawn a frame that is to be read now, (R,) bool."""
        found = np.zeros(self.count, bool)
        for slot, text in self.texts.items():
            found[slot] = text.step > 0 and not text.waits
        return found

    def positions(self) -> np.ndarray:
        """Return where each row is written next, (R,) int32: for a text without frames, or that waits, which
        write nothing of use, the place of its next frame.
        """
        found = np.zeros(self.count, np.int32)
        for slot, text in self.texts.items():
            found[slot] = text.joining.positions + max(0, text.step - 1)
        return found

    def trailing(self) -> Iterator[tuple[int, int]]:
        """Yield the slots of texts that read a frame, and which of their trailing texts goes with it."""
        for slot, text in self.texts.items():
            if text.step and not text.waits:
                yield slot, min(text.step - 1, len(text.trailing))

    def groups(self) -> list[Qwen3Group]:
        """Group the rows of texts that draw by their rules."""
        drawing = [(slot, text) for slot, text in self.texts.items() if not text.waits]
        keyed = sorted(drawing, key=lambda item: (repr(item[1].joining.sampling), item[1].step))
        return [
            Qwen3Group(sampling, [slot for slot, _ in texts], is_early=is_early)
            for (sampling, is_early), texts in groupby(
                keyed, lambda item: (item[1].joining.sampling, item[1].step < LEAST_FRAMES)
            )
        ]

    def uniform(self, numbers: int) -> np.ndarray:
        """Draw the numbers of every row's step, (R, numbers) float32 in (0, 1)."""
        found = np.full((self.count, numbers), 0.5, np.float32)
        for slot, text in self.texts.items():
            if not text.waits:
                found[slot] = text.joining.noise.uniform(text.step, (numbers,))
        return found
