"""Bootstrap intervals over rows, 95 %, from 1,000 draws with a fixed seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DRAWS, SEED = 1000, 0
PERCENTILES = (2.5, 97.5)


def ratio_interval(
    parts: Sequence[float], wholes: Sequence[float], scale: float = 1.0
) -> tuple[float, float]:
    """Interval of sum(parts) / sum(wholes) · scale: (low, high)."""
    low, high = np.percentile(_ratios(parts, wholes, scale), PERCENTILES)
    return float(low), float(high)


def paired_interval(
    ours: tuple[Sequence[float], Sequence[float]],
    theirs: tuple[Sequence[float], Sequence[float]],
    scale: float = 1.0,
) -> tuple[float, float]:
    """Interval of the difference, ours - theirs, of two such ratios over the same rows: (low, high).

    ours, theirs: parts and wholes, in the same order; a row is drawn for both at once.
    """
    low, high = np.percentile(_ratios(*ours, scale) - _ratios(*theirs, scale), PERCENTILES)
    return float(low), float(high)


def _ratios(parts: Sequence[float], wholes: Sequence[float], scale: float) -> np.ndarray:
    drawn = np.random.default_rng(SEED).integers(len(parts), size=(DRAWS, len(parts)))
    return scale * np.asarray(parts)[drawn].sum(1) / np.maximum(np.asarray(wholes)[drawn].sum(1), 1e-12)
