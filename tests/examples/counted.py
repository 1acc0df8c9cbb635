"""A clock for training in tests: it counts steps, not seconds."""

from __future__ import annotations

from examples.train_voice.parallel import Processes

CHECKPOINT = 31.0  # seconds per step for the recipes: long enough after the last checkpoint for another one


class Killed(Exception):
    """Simulates a process that is killed during training."""


class Counted:
    """`Clock` that counts steps as minutes."""

    def __init__(self, processes: Processes, minutes: float, spent: float):
        self.minutes, self.spent = minutes, spent

    def look(self, step: int) -> float:
        """Progress from 0 to 1."""
        self.spent = CHECKPOINT * step
        return step / self.minutes


class Mortal(Counted):
    """Clock that ends the training before step DEATH."""

    DEATH = 3

    def look(self, step: int) -> float:
        """Progress from 0 to 1, or Killed."""
        if step == self.DEATH:
            raise Killed
        return super().look(step)
