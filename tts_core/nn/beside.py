"""Results of work that a device does beside other work of the same thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")
Made_co = TypeVar("Made_co", covariant=True)


class Pending(Protocol[Made_co]):
    """A result that may come late."""

    def ready(self) -> bool:
        """Return True once `take` does not wait for the device."""
        ...

    def take(self) -> Made_co:
        """Wait for the result and return it. Raises the error of the work."""
        ...


@dataclass(frozen=True, eq=False)
class Done(Pending[Made]):
    """A result that is there."""

    made: Made

    def ready(self) -> bool:
        return True

    def take(self) -> Made:
        return self.made


@dataclass(frozen=True, eq=False)
class Then(Pending[Made], Generic[Given, Made]):
    """A result that the host computes from another one when it is taken."""

    pending: Pending[Given]
    change: Callable[[Given], Made]

    def ready(self) -> bool:
        return self.pending.ready()

    def take(self) -> Made:
        return self.change(self.pending.take())
