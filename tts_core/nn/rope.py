"""Rotary position tables, the same numbers for both sides.

The angles are made in float64 and their sines rounded once: in float32 an angle of 3,000 radians is off by
1e-4 (upstream's is).
"""

from __future__ import annotations

import numpy as np


def rope_table(length: int, head_dim: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of position / theta ** (2 i / head_dim), each (length, head_dim / 2) float32."""
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles = np.arange(length, dtype=np.float64)[:, None] * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
