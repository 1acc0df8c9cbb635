"""Random inputs from a seed."""

from __future__ import annotations

import numpy as np


def normal(seed: int, *shape: int, scale: float = 1.0) -> np.ndarray:
    """float32 numbers of standard deviation `scale`."""
    return np.random.default_rng(seed).normal(0, scale, shape).astype(np.float32)
