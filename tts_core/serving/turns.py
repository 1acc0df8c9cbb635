"""Texts in the slots of a network's running batch, and the draws of theirs that are still being read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

Turn = TypeVar("Turn")


class Slots(Protocol):
    """A running batch of one network: `slots.py` of a model, on either side.

    steps: that one launch runs.  ahead: launches before the first is read.
    """

    steps: int
    ahead: int

    def join(self, slot: int, text: Any) -> None:
        """Let a text begin with the next launch; its slot must be free."""
        ...

    def leave(self, slot: int) -> None:
        """Free a slot before the next launch."""
        ...

    def launch(self, steps: int) -> Any:
        """Run some steps; waits for nothing. Returns what `read` reads."""
        ...

    def read(self, launched: Any) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids by slot, -1 where logits were not all finite."""
        ...


@dataclass(frozen=True, eq=False)
class _Stay(Generic[Turn]):
    """One stay of a text in a slot: a value may stay there again, with another text."""

    turn: Turn


class Turns(Generic[Turn]):
    """The texts in slots, each with a value of the caller's, and the launches that are not read yet."""

    def __init__(self, slots: Slots, places: int):
        self.slots, self.places = slots, places
        self._stays: dict[int, _Stay[Turn]] = {}  # by slot
        self._launched: deque[tuple[Any, dict[int, _Stay[Turn]]]] = deque()

    @property
    def running(self) -> bool:
        """True if a text has a slot."""
        return bool(self._stays)

    def begin(self, turn: Turn, text: Any) -> None:
        """Let a text join the lowest free slot; there must be one."""
        slot = min(set(range(self.places)) - self._stays.keys())
        self.slots.join(slot, text)
        self._stays[slot] = _Stay(turn)

    def end(self, turn: Turn) -> None:
        """Free a text's slot, if it has one. Draws of it that are not read yet are dropped."""
        for slot, stay in [*self._stays.items()]:
            if stay.turn is turn:
                self.slots.leave(slot)
                del self._stays[slot]

    def slot(self, turn: Turn) -> int | None:
        """Find the slot of a text; None without one."""
        return next((slot for slot, stay in self._stays.items() if stay.turn is turn), None)

    @property
    def has_launched(self) -> bool:
        """True if steps run that are not read."""
        return bool(self._stays and self._launched)

    def draws(self, *, can_launch: Callable[[], bool] = lambda: True) -> list[tuple[Turn, np.ndarray]]:
        """Launch the next steps and read the oldest. Returns the ids of each text that is there, (steps,).

        can_launch: whether a step has something to do.
        """
        if not self._stays:
            self._launched.clear()
            return []
        while len(self._launched) <= self.slots.ahead and can_launch():
            self._launched.append((self.slots.launch(self.slots.steps), dict(self._stays)))
        if not self._launched:
            return []
        launched, stays = self._launched.popleft()
        drawn = self.slots.read(launched)
        return [(stay.turn, drawn[:, slot]) for slot, stay in stays.items() if self._stays.get(slot) is stay]
