"""Texts that share the autoregressive network's batch: what the next step of each reads.

Positions, penalties and random numbers follow from the number of steps that a text has run, so all of them
are known before the ids are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tts_core.mars5.options import Mars5Options
from tts_core.mars5.sampling import PENALTIES_ABOVE, end_penalties, sampling_key
from tts_core.mars5.tokens import CodecPrompt
from tts_core.nn.noise import Noise


@dataclass(frozen=True, eq=False)
class Mars5Joining:
    """A text that joins. codes: (Q, P), the reference's.  noise: one number per draw."""

    prompt: CodecPrompt
    codes: np.ndarray
    options: Mars5Options
    noise: Noise

    @property
    def room(self) -> int:
        """Most ids that may be drawn."""
        return self.options.max_len - len(self.prompt.tokens)

    @property
    def window(self) -> int:
        """Number of last ids whose repetition is penalized."""
        return min(self.options.rep_penalty_window, self.room)


class Mars5Group(NamedTuple):
    """Texts of equal sampling. slots: (B,) int64."""

    options: Mars5Options
    slots: np.ndarray


class Inputs(NamedTuple):
    """A step's inputs, one for each row in use; zeros in free ones.

    positions: int32, of the last drawn id; a text that has drawn none has the logits of its prompt, and may
    write its next position.
    recent: int32, place of the drawn id among the last ones.
    repeats: bool, whether repeats are penalized.
    penalty: float32, of the end.
    uniform: float32.
    """

    positions: np.ndarray
    recent: np.ndarray
    repeats: np.ndarray
    penalty: np.ndarray
    uniform: np.ndarray


@dataclass(eq=False)
class _Mars5Text:
    """A text in a slot. penalties: (room,), of the end.  steps: that it has run."""

    joining: Mars5Joining
    penalties: np.ndarray
    steps: int = 0


@dataclass
class Mars5BatchRows:
    """Rows of a batch, one a slot. capacity: most positions of a text, its speaker's included."""

    slots: int
    capacity: int
    texts: dict[int, _Mars5Text] = field(default_factory=dict)  # by slot

    def join(self, slot: int, text: Mars5Joining) -> None:
        """Give a free slot to a text that has room for an id."""
        assert slot not in self.texts
        assert 0 <= slot < self.slots
        self.texts[slot] = _Mars5Text(
            text, end_penalties(text.options, text.prompt.expected_tokens, max(1, text.room))
        )

    def leave(self, slot: int) -> None:
        """Free a slot."""
        del self.texts[slot]

    @property
    def count(self) -> int:
        """Rows to compute: up to the last one of any text."""
        return 1 + max(self.texts, default=-1)

    def groups(self) -> list[Mars5Group]:
        """Group the texts by their sampling."""
        found: dict[tuple[float, ...], list[int]] = {}
        for slot, text in sorted(self.texts.items()):
            found.setdefault(sampling_key(text.joining.options), []).append(slot)
        return [Mars5Group(self.texts[slots[0]].joining.options, np.array(slots)) for slots in found.values()]

    def step(self) -> Inputs:
        """Return the next step's inputs and count it; a text past its end repeats its last ones."""
        made = Inputs(*(np.zeros(self.count, kind) for kind in "iiiff"))
        for slot, text in self.texts.items():
            joining, steps = text.joining, text.steps
            made.positions[slot] = min(len(joining.prompt.tokens) + max(1, steps), self.capacity - 1)
            made.recent[slot] = steps % joining.window
            made.repeats[slot] = steps > PENALTIES_ABOVE
            made.penalty[slot] = text.penalties[min(steps, len(text.penalties) - 1)]
            made.uniform[slot] = joining.noise.uniform(steps, (1,))[0]
            text.steps += 1
        return made._replace(repeats=made.repeats.astype(bool))
