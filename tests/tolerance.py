"""The one bound for floating-point comparisons: derived from a float64 oracle, never tuned to a result.

A network run in float32 and in float64 with the same weights differs only by float32 rounding, so
`err(torch32)`, the largest such difference, measures how much rounding this network does on this input.
Another correct float32 implementation does the same operations and may only associate its sums differently.
For sums of n terms that moves the rounding error between about sqrt(log2 n) (pairwise) and sqrt(n) (in
sequence) units; at n = 4096 the ratio is sqrt(4096 / 12) = 18, hence a factor of 16: four bits. Where the
yardstick's error happens to be zero or tiny (a copy, an exact sum), rounding of inputs and result still
costs units in the last place of the largest value: 4 eps(scale).

    err(candidate32) <= 16 * err(torch32) + 4 * eps(scale)
    err(x) = max |x - oracle64|, scale = max |oracle64|

Golden vectors are float32 results of the original code: one more float32 run whose rounding is of the same
size. They serve twice (`assert_golden`). First as a candidate against torch32: a wrong network of ours,
float64 or not, is far from them by more than rounding. Then, being anchored, their own error is the
yardstick for each side of ours.

Two float32 results that differ only in how sums are associated, such as those of other windows, are each
within the bound, so they differ by at most twice as much (tests/windows.py). Where both results are float64,
rounding is 2^-29 of float32's: the limits of 1e-10 to 1e-14 in tests/parity would be 5e-2 to 5e-6 in float32,
above `bound` there, and what a test of float64 looks for, such as a missing frame of context, is above them.

A wrong constant, order or position moves a result by far more than four bits of rounding, if the input
makes it matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

FACTOR = 16
FLOOR = 4
EPS = float(np.finfo(np.float32).eps)


def error(value: ArrayLike, oracle: np.ndarray) -> float:
    """Largest absolute difference; infinite where `value` is not a number. Shapes must agree."""
    difference = np.abs(np.asarray(value, dtype=np.float64) - oracle)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def bound(yardstick: ArrayLike, oracle: np.ndarray) -> float:
    """The largest error that a float32 result may have, given another float32 result of the same network."""
    return FACTOR * error(yardstick, oracle) + FLOOR * EPS * float(np.abs(oracle).max(initial=0.0))


def assert_within(candidate: ArrayLike, yardstick: ArrayLike, oracle: ArrayLike, what: str) -> None:
    """Require `candidate` (float32) to be as close to `oracle` (float64) as rounding explains.

    yardstick: a float32 result known to be right, for which `bound` is derived.
    Raises AssertionError with max abs, max rel, SNR, index and shapes.
    """
    value, truth, known = np.asarray(candidate), np.asarray(oracle), np.asarray(yardstick)
    assert truth.dtype == np.float64, f"{what}: the oracle is {truth.dtype}, must be float64"
    assert np.isfinite(truth).all(), f"{what}: the oracle is not finite"
    for name, array in (("candidate", value), ("yardstick", known)):
        assert array.dtype == np.float32, f"{what}: the {name} is {array.dtype}, must be float32"
        assert array.shape == truth.shape, f"{what}: {name} shape {array.shape}, expected {truth.shape}"
    allowed = bound(known, truth)
    assert np.isfinite(allowed), f"{what}: the yardstick is not finite"
    if error(value, truth) > allowed:
        raise AssertionError(
            f"{what}: {report(value, truth)}, bound {allowed:.3e} (yardstick {error(known, truth):.3e})"
        )


def assert_golden(
    candidate: ArrayLike, golden: ArrayLike, torch32: ArrayLike, oracle: ArrayLike, what: str
) -> None:
    """Require that the golden vector anchors the oracle, and that `candidate` is as near to it.

    torch32, oracle: our torch network on the same input in float32 and float64.
    """
    assert_within(golden, torch32, oracle, f"{what}: golden vector against our float64 network")
    assert_within(candidate, golden, oracle, what)


def report(value: np.ndarray, truth: np.ndarray) -> str:
    """Max abs and max rel error, SNR in dB, the worst index with both values, and the shape."""
    difference = np.abs(value.astype(np.float64) - truth)
    difference = np.where(np.isnan(difference), np.inf, difference)
    index = tuple(int(i) for i in np.unravel_index(np.argmax(difference), difference.shape))
    relative = np.divide(difference, np.abs(truth), out=np.zeros_like(difference), where=truth != 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        snr = 10 * np.log10(np.sum(truth**2) / np.sum(difference**2))
    return (
        f"max abs {difference.max():.3e}, max rel {relative.max():.3e}, SNR {snr:.1f} dB, "
        f"at index {index}: {value[index]!s} for {truth[index]!s}, shape {value.shape}"
    )
