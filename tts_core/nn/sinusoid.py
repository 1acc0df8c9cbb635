"""Sines and cosines that stand for numbers: positions in a sequence, timesteps of a diffusion.

In float64, so that each side rounds once; Vaswani et al., "Attention is all you need", arXiv:1706.03762.
"""

from __future__ import annotations

import math

import numpy as np

BASE = 10000.0


def position_table(length: int, width: int) -> np.ndarray:
    """Sine and cosine of position x frequency in turn, positions 0 .. length-1. → (length, width) float64."""
    frequencies = np.exp(-math.log(BASE) * np.arange(0, width, 2) / width)
    angles = np.arange(length)[:, None] * frequencies
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1)[:, :width]


def timestep_table(timesteps: int, width: int) -> np.ndarray:
    """Cosines, then sines, of timestep x frequency, timesteps 0 .. T-1. → (timesteps, width) float64."""
    frequencies = np.exp(-math.log(BASE) * np.arange(width // 2) / (width // 2))
    angles = np.arange(timesteps)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
