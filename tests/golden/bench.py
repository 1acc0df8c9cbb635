"""One subject on the side under test, beside the two torch runs that bound its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from tests.tolerance import assert_golden, assert_within

Subject = TypeVar("Subject", covariant=True)


@dataclass(frozen=True)
class Bench(Generic[Subject]):
    """A loaded network or pipeline on the side under test, and in torch in float32 and float64."""

    side: Subject
    torch32: Subject
    torch64: Subject

    @classmethod
    def load(cls, side: str, load: Callable[[str], Subject]) -> Bench[Subject]:
        """load: kind of side → subject; it should give the same object for the same kind."""
        return Bench(load(side), load("torch"), load("float64"))

    def compare(self, what: str, golden: np.ndarray, compute: Callable[[Subject], np.ndarray]) -> None:
        """Require the result of `compute` on the side under test to be within the derived bound."""
        own, known, truth = self.results(compute)
        assert_golden(own, golden, known, truth, what)

    def results(self, compute: Callable[[Subject], np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Results of the side under test, of torch in float32 and of torch in float64."""
        known = compute(self.torch32)
        own = known if self.side is self.torch32 else compute(self.side)
        return own, known, compute(self.torch64)

    def parity(self, what: str, compute: Callable[[Subject], np.ndarray]) -> None:
        """The derived bound where no golden vector exists."""
        assert_within(*self.results(compute), what)
