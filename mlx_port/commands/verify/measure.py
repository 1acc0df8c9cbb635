"""Errors of a layer against the oracle, and the bound on them.

The oracle is torch in float64. The same layer of torch in float32, on the same input, says how much rounding
this layer does; another correct implementation associates its sums differently, which is worth four bits, and
rounds inputs and result:

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
class Row:
    """One layer in one precision. Errors are absolute; relative ones are to the output's scale."""

    part: str  # of the model: "dia", "codec" ..
    layer: str
    dtype: str  # in which both sides computed
    error: float
    torch_error: float
    scale: float
    bound: float
    snr_db: float  # infinite where equal
    judged: bool = True  # False: the bound is shown and does not count

    @property
    def passed(self) -> bool:
        """Whether the error is a number within the bound, if that counts."""
        return math.isfinite(self.error) and (self.error <= self.bound or not self.judged)

    @property
    def relative(self) -> float:
        """The error over the output's scale."""
        return self.error / self.scale if self.scale else self.error

    @property
    def share(self) -> float:
        """The error over the bound; infinite where it is not a number."""
        if not math.isfinite(self.error):
            return math.inf
        return self.error / self.bound if self.bound else (math.inf if self.error else 0.0)

    @property
    def ratio(self) -> float:
        """MLX's error over torch's own; 1 where both are exact."""
        if self.torch_error:
            return self.error / self.torch_error
        return math.inf if self.error else 1.0


@dataclass(frozen=True)
class Choices:
    """Agreement of chosen codes with the oracle's. A choice that rounding explains is a near-tie.

    near_ties, wrong: by how much each different choice was worse to the oracle.  allowed: by how much it may
    be.
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
        """Whether no choice is wrong, if that counts."""
        return not (self.wrong and self.judged)


def measure(
    part: str,
    layer: str,
    dtype: str,
    truth: Sequence[np.ndarray],
    torch: Sequence[np.ndarray],
    mlx: Sequence[np.ndarray],
    judged: bool,
) -> Row:
    """A layer's outputs on the three sides, same shapes; several arrays count as one."""
    oracle, yardstick, value = (_joined(side) for side in (truth, torch, mlx))
    scale, torch_error = float(np.abs(oracle).max(initial=0.0)), error(yardstick, oracle)
    bound = FACTOR * torch_error + FLOOR * EPS[dtype] * scale
    return Row(
        part, layer, dtype, error(value, oracle), torch_error, scale, bound, snr_db(value, oracle), judged
    )


def error(value: np.ndarray, oracle: np.ndarray) -> float:
    """Largest absolute difference; infinite where `value` is not a number."""
    difference = np.abs(value.astype(np.float64) - oracle)
    return float(np.where(np.isnan(difference), np.inf, difference).max(initial=0.0))


def snr_db(value: np.ndarray, oracle: np.ndarray) -> float:
    """Signal-to-noise ratio; infinite where equal, minus infinite where `value` is not finite."""
    signal = float(np.square(oracle, dtype=np.float64).sum())
    noise = float(np.square(value.astype(np.float64) - oracle).sum())
    return decibels(signal, noise)


def decibels(signal: float, noise: float) -> float:
    """10 log10(signal / noise) of powers, with its limits."""
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
    """MLX's choices among N by the lowest cost.

    costs: (..., N) the oracle's.  torch_costs: torch's own, which say how far rounding moves a cost.
    chosen: (...).
    A cost may be off by the bound, and a choice therefore worse by twice as much.
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
    """Squared distances by which a codec's quantizer chooses: DAC's of directions, EnCodec's of points.

    (B, E, T), (N, E) → (B, T, N).
    """
    vectors, entries = encodings.swapaxes(1, 2), codebook.astype(encodings.dtype)
    if between == "directions":
        vectors, entries = _directions(vectors), _directions(entries)
    cross = vectors @ entries.T
    return np.square(vectors).sum(-1, keepdims=True) - 2 * cross + np.square(entries).sum(-1)


def _directions(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), x.dtype.type(1e-12))


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([array.ravel() for array in arrays])
