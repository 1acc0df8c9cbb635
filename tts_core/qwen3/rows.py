"""The texts of a running batch of Qwen3-TTS, each in a row: where it is, and what it draws with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from tts_core.nn.noise import Noise
from tts_core.qwen3.layout import Layout
from tts_core.qwen3.sampling import LEAST_FRAMES, Sampling


@dataclass(frozen=True, eq=False)
class Joining:
    """The inputs of a text that takes a slot.

    speaker: (D,) float32, the vector of a recording.
    frames: (Q, F) int32, the codes of a recording.
    """

    layout: Layout
    sampling: Sampling
    noise: Noise
    speaker: np.ndarray | None = None
    frames: np.ndarray | None = None

    @property
    def positions(self) -> int:
        """Positions that are read before speech."""
        return len(self.layout.text)

    def read_with(self, frames: int, padding: int) -> np.ndarray:
        """Return the text ids that are read with the first frames, (T,) int32. padding: the id after them."""
        trailing = self.layout.trailing[:frames]
        return np.array([*trailing, *[padding] * (frames - len(trailing))], np.int32)


@dataclass(eq=False)
class _Text:
    """A text in a slot. step: frames that were drawn."""

    joining: Joining
    step: int = 0


class Group:
    """Rows that are drawn under the same rules. is_early: speech cannot end yet.  rows: (N,) int64."""

    def __init__(self, sampling: Sampling, rows: list[int], *, is_early: bool):
        self.sampling, self.is_early, self.rows = sampling, is_early, np.array(rows)


class BatchRows:
    """Slots of a batch, a row each; the rows in use are the first ones, free ones among them included."""

    def __init__(self, slots: int):
        self.slots = slots
        self.texts: dict[int, _Text] = {}

    @property
    def count(self) -> int:
        """Rows in use."""
        return max(self.texts, default=-1) + 1

    def join(self, slot: int, joining: Joining) -> None:
        """Put a text into a free slot."""
        self.texts[slot] = _Text(joining)

    def leave(self, slot: int) -> None:
        """Free a slot."""
        del self.texts[slot]

    def advance(self) -> None:
        """Count the frame that every text has drawn."""
        for text in self.texts.values():
            text.step += 1

    def begun(self) -> np.ndarray:
        """Return which rows have drawn a frame that is to be read, (R,) bool."""
        found = np.zeros(self.count, bool)
        for slot, text in self.texts.items():
            found[slot] = text.step > 0
        return found

    def positions(self) -> np.ndarray:
        """Return where each row is written next, (R,) int32: for a text without frames, which writes
        nothing of use, and for its first frame the same place.
        """
        found = np.zeros(self.count, np.int32)
        for slot, text in self.texts.items():
            found[slot] = text.joining.positions + max(0, text.step - 1)
        return found

    def trailing(self) -> Iterator[tuple[int, int]]:
        """Yield the slots of texts that read a frame, and which of their trailing texts goes with it."""
        for slot, text in self.texts.items():
            if text.step:
                yield slot, min(text.step - 1, len(text.joining.layout.trailing))

    def groups(self) -> list[Group]:
        """Group the rows of texts by their rules."""
        keyed = sorted(self.texts.items(), key=lambda item: (repr(item[1].joining.sampling), item[1].step))
        return [
            Group(sampling, [slot for slot, _ in texts], is_early=is_early)
            for (sampling, is_early), texts in groupby(
                keyed, lambda item: (item[1].joining.sampling, item[1].step < LEAST_FRAMES)
            )
        ]

    def uniform(self, numbers: int) -> np.ndarray:
        """Draw the numbers of every row's step, (R, numbers) float32 in (0, 1)."""
        found = np.full((self.count, numbers), 0.5, np.float32)
        for slot, text in self.texts.items():
            found[slot] = text.joining.noise.uniform(text.step, (numbers,))
        return found
