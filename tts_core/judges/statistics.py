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
    drawn = np.random.default_rng(SEED).integers(len(parts), size=(DRAWS, len(parts)))
    ratios = np.asarray(parts)[drawn].sum(1) / np.maximum(np.asarray(wholes)[drawn].sum(1), 1e-12)
    low, high = np.percentile(scale * ratios, PERCENTILES)
    return float(low), float(high)
