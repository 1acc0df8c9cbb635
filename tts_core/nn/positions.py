"""Tables of sines and cosines for sequence positions and diffusion timesteps, shared by both sides.

Angles are float64 until the end, so that each side rounds once: in float32, as in upstream, an angle of 3,000
radians is off by 1e-4. Vaswani et al., "Attention is all you need", arXiv:1706.03762; Su et al., "RoFormer",
arXiv:2104.09864.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

BASE = 10000.0


def position_table(length: int, width: int) -> np.ndarray:
    """Interleave sine and cosine of position x frequency, positions 0 .. length-1.

    → (length, width) float64.
    """
    frequencies = np.exp(-math.log(BASE) * np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * frequencies
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)[:, :width]


def timestep_table(timesteps: int, width: int) -> np.ndarray:
    """Concatenate cosines and sines of timestep x frequency, timesteps 0 .. T-1.

    → (timesteps, width) float64.
    """
    frequencies = np.exp(-math.log(BASE) * np.arange(width // 2) / (width // 2))
    angles = np.arange(timesteps)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)


def stream_positions(
    starts: Sequence[int], count: int, held: int, *, window: int, head_dim: int, theta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find `count` steps in streams: cos and sin, and the keys that each step sees, itself included.

    starts: steps of each stream so far.
    held: keys before the new ones; the last of these are the stream's, others are padding.
    → (T, E/2) float32 twice and (T, S) booleans, S = held + T; where streams differ (R, 1, ...) each.
    """
    column = np.arange(held + count)
    row = column[held:, None]
    mask = (column <= row) & (column > row - window)
    if len({*starts}) == 1:
        cos, sin = rope_table(count, head_dim, theta, start=starts[0])
        return cos, sin, mask & (column >= held - starts[0])
    cos, sin = rope_table(count, head_dim, theta, start=starts)
    known = column >= held - np.asarray(starts)[:, None, None, None]
    return cos[:, None], sin[:, None], mask & known


def rope_table(
    length: int, head_dim: int, theta: float, *, start: int | Sequence[int] = 0, unit: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute cos and sin of position / theta ** (2 i / head_dim), each (length, head_dim / 2) float32.

    Positions are start .. start + length - 1, divided by `unit`; of several starts (R, length, head_dim / 2).
    """
    frequencies = theta ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim) / unit
    positions = np.asarray(start, np.float64)[..., None] + np.arange(length)
    angles = positions[..., None] * frequencies
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
