"""Texts that share the first stage's batch: the rows of each, and what their next step reads.

A text takes one row for each kind of guidance row (FirstStageSampling.rows). Positions and random numbers
follow from the number of steps that a text has run, so all of them are known before the ids are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tts_core.metavoice.sampling import FirstStageSampling, waiting_times
from tts_core.nn.noise import Noise

ROWS = 2  # of a text with the usual guidance
MOST_ROWS = 3  # of a text


def most_rows(texts: int) -> int:
    """Count the rows of a batch: enough for `texts` texts of usual guidance, and for any one."""
    return max(MOST_ROWS, ROWS * texts)


@dataclass(frozen=True, eq=False)
class MetaVoiceJoining:
    """A text that joins.

    ids: (S,) int32, S > 0, end of text included.
    vector: (E,) float32, its speaker's.
    noise: read at the index of each new id.
    """

    ids: np.ndarray
    vector: np.ndarray
    sampling: FirstStageSampling
    noise: Noise


class MetaVoiceGroup(NamedTuple):
    """Texts of equal sampling. slots: (B,) int64.  rows: (G, B) int64, those of guidance after the first."""

    sampling: FirstStageSampling
    slots: np.ndarray
    rows: np.ndarray


@dataclass(eq=False)
class _MetaVoiceText:
    """A text in a slot. steps: that it has run."""

    joining: MetaVoiceJoining
    rows: list[int]
    steps: int = 0


@dataclass
class MetaVoiceBatchRows:
    """Rows of a batch: `rows` in all, for at most `slots` texts of at most `capacity` ids each."""

    slots: int
    rows: int
    capacity: int
    texts: dict[int, _MetaVoiceText] = field(default_factory=dict)  # by slot

    def fits(self, sampling: FirstStageSampling) -> bool:
        """Return whether a text with this sampling could join now."""
        return len(self.texts) < self.slots and len(self._free) >= sampling.rows

    def join(self, slot: int, text: MetaVoiceJoining) -> list[int]:
        """Give a free slot to a text. Returns its rows, the lowest free ones."""
        assert slot not in self.texts
        assert 0 <= slot < self.slots
        assert self.fits(text.sampling)
        self.texts[slot] = _MetaVoiceText(text, self._free[: text.sampling.rows])
        return self.texts[slot].rows

    def leave(self, slot: int) -> None:
        """Free a slot and its rows."""
        del self.texts[slot]

    @property
    def count(self) -> int:
        """Rows to compute: up to the last one of any text."""
        return 1 + max((row for text in self.texts.values() for row in text.rows), default=-1)

    def groups(self) -> list[MetaVoiceGroup]:
        """Group the texts by their sampling."""
        found: dict[FirstStageSampling, list[int]] = {}
        for slot, text in sorted(self.texts.items()):
            found.setdefault(text.joining.sampling, []).append(slot)
        return [
            MetaVoiceGroup(sampling, np.array(slots), np.array([self.texts[slot].rows for slot in slots]).T)
            for sampling, slots in found.items()
        ]

    def positions(self) -> np.ndarray:
        """Position of each row's next id, (count,) int32; a text past its end stays at the last one."""
        positions = np.zeros(self.count, np.int32)
        for text in self.texts.values():
            positions[text.rows] = self._position(text)
        return positions

    def level(self) -> int | None:
        """Return the position of all rows' next ids; None if they differ."""
        found = {self._position(text) for text in self.texts.values()}
        return found.pop() if len(found) == 1 else None

    def waiting(self, ids: int) -> np.ndarray:
        """Waiting times of every slot's next draw, (slots, ids) float32; ones where there is none."""
        numbers = np.ones((self.slots, ids), np.float32)
        for slot, text in self.texts.items():
            if not text.joining.sampling.greedy:
                numbers[slot] = waiting_times(text.joining.noise, text.steps, (ids,))
        return numbers

    def advance(self) -> None:
        """Count a step of every text."""
        for text in self.texts.values():
            text.steps += 1

    def _position(self, text: _MetaVoiceText) -> int:
        return min(len(text.joining.ids) - 1 + text.steps, self.capacity - 1)

    @property
    def _free(self) -> list[int]:
        taken = {row for text in self.texts.values() for row in text.rows}
        return [row for row in range(self.rows) if row not in taken]
