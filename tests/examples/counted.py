"""A clock for training in tests: it counts steps, not seconds."""

from __future__ import annotations

from examples.train_voice.parallel import Processes

CHECKPOINT = 31.0  # seconds, as the recipes see a step: each is behind the last checkpoint long enough


class Killed(Exception):
    """Stands for a process that is gone in the middle of its training."""


class Counted:
    """As `Clock`, with steps for minutes."""

    def __init__(self, processes: Processes, minutes: float, spent: float):
        self.minutes, self.spent = minutes, spent

    def look(self, step: int) -> float:
        """0 to 1."""
        self.spent = CHECKPOINT * step
        return step / self.minutes


class Mortal(Counted):
    """It ends the training before step DEATH."""

    DEATH = 3

    def look(self, step: int) -> float:
        """0 to 1, or Killed."""
        if step == self.DEATH:
            raise Killed
        return super().look(step)
