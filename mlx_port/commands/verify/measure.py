"""Errors of a layer against the oracle, and the bound on them.

The oracle is torch in float64. The same layer of torch in float32, on the same input, measures how much this
layer rounds; another correct implementation sums in another order, worth four bits, and rounds inputs and
result:

    err(mlx) <= 16 err(torch) + 4 eps scale,    err = max |x - oracle|,    scale = max |oracle|

A wrong constant, order, position or weight is worth far more than four bits of rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

FACTOR = 16
FLOOR = 4
EPS = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass(frozen=True)
class LayerRow:
    """One layer in one precision. Errors are absolute, except `relative`: to the output's scale."""

    part: str  # of the model: "dia", "codec" ..
    layer: str
    dtype: str  # of the computation on both sides
    error: float
    torch_error: float
    scale: float
    bound: float
    snr_db: float  # infinite if equal
    judged: bool = True  # False: the bound is shown but not enforced

    @property
    def passed(self) -> bool:
        """True if the error is finite and, where judged, within the bound."""
        return math.isfinite(self.error) and (self.error <= self.bound or not self.judged)

    @property
    def relative(self) -> float:
        """Error divided by the output's scale."""
        return self.error / self.scale if self.scale else self.error

    @property
    def share(self) -> float:
        """Error divided by the bound; infinite if it is not finite."""
        if not math.isfinite(self.error):
            return math.inf
        return self.error / self.bound if self.bound else (math.inf if self.error else 0.0)

    @property
    def ratio(self) -> float:
        """MLX's error divided by torch's; 1 if both are exact."""
        if self.torch_error:
            return self.error / self.torch_error
        return math.inf if self.error else 1.0


@dataclass(frozen=True)
class Choices:
    """Agreement of chosen codes with the oracle's. A different choice that rounding explains is a near-tie.

    near_ties, wrong: the oracle's extra cost of each different choice.  allowed: the most that rounding
    explains.
    """

    part: str
    layer: str
    dtype: str
    total: int
    equal: int
    near_ties: tuple[float, ...] = ()
    wrong: tuple[float, ...] = ()
    allowed: float = 0.0
    judged: bool = True

    @property
    def passed(self) -> bool:
        """True if no choice is wrong, or the choices are not judged."""
        return not (self.wrong and self.judged)


def measure(
    part: str,
    layer: str,
    dtype: str,
    truth: Sequence[np.ndarray],
    torch: Sequence[np.ndarray],
    mlx: Sequence[np.ndarray],
    judged: bool,
) -> LayerRow:
    """Measure a layer by its outputs on the three sides, of the same shapes; several arrays count as one."""
    oracle, yardstick, value = (_flat(side) for side in (truth, torch, mlx))
    scale, torch_error = float(np.abs(oracle).max(initial=0.0)), error(yardstick, oracle)
    bound = FACTOR * torch_error + FLOOR * EPS[dtype] * scale
    return LayerRow(
        part, layer, dtype, error(value, oracle), torch_error, scale, bound, snr_db(value, oracle), judged
    )


def error(value: np.ndarray, oracle: np.ndarray) -> float:
    """Largest absolute difference; infinite if `value` contains NaN."""
    difference = np.abs(value.astype(np.float64) - oracle)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def snr_db(value: np.ndarray, oracle: np.ndarray) -> float:
    """Signal-to-noise ratio; infinite if equal, minus infinite if `value` is not finite."""
    signal = float(np.square(oracle, dtype=np.float64).sum())
    noise = float(np.square(value.astype(np.float64) - oracle).sum())
    return decibels(signal, noise)


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise) of powers; infinite at its limits."""
    if not math.isfinite(noise):
        return -math.inf
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def compare_choices(
    part: str,
    layer: str,
    dtype: str,
    costs: np.ndarray,
    torch_costs: np.ndarray,
    chosen: np.ndarray,
    judged: bool,
) -> Choices:
    """Compare MLX's choices among N with those of the lowest cost.

    costs: (..., N), the oracle's.
    torch_costs: torch's, to measure how far rounding moves a cost.
    chosen: (...), MLX's. A cost may be off by the bound, so a choice may be worse by twice the bound.
    """
    scale = float(np.abs(costs).max(initial=0.0))
    allowed = 2 * (FACTOR * error(torch_costs, costs) + FLOOR * EPS[dtype] * scale)
    taken = np.take_along_axis(costs, chosen[..., None].astype(np.int64), -1)[..., 0]
    different = chosen != costs.argmin(-1)
    worse = (taken - costs.min(-1))[different]
    near = worse <= allowed
    ties, wrong = (tuple(float(cost) for cost in worse[which]) for which in (near, ~near))
    return Choices(
        part, layer, dtype, chosen.size, chosen.size - int(different.sum()), ties, wrong, allowed, judged
    )


def distances(
    encodings: np.ndarray, codebook: np.ndarray, between: Literal["directions", "points"]
) -> np.ndarray:
    """Squared distances that a codec's quantizer minimizes: between directions in DAC, points in EnCodec.

    (B, E, T), (N, E) → (B, T, N).
    """
    vectors, entries = encodings.swapaxes(1, 2), codebook.astype(encodings.dtype)
    if between == "directions":
        vectors, entries = _directions(vectors), _directions(entries)
    cross = vectors @ entries.T
    return np.square(vectors).sum(-1, keepdims=True) - 2 * cross + np.square(entries).sum(-1)


def _directions(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), x.dtype.type(1e-12))


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays])
