"""The noise schedule of MARS5's diffusion: log-probabilities that a code survives a timestep.

A cosine schedule (Nichol and Dhariwal, "Improved denoising diffusion probabilistic models", arXiv:2102.09672)
whose alpha is the square root of the usual one. MARS5 computes alpha with PyTorch's float32 cosine and square
root on an x86 CPU, which are not correctly rounded; the last bit changes small entries of log(1 - alpha) by
up to 3e-3. Here alpha is rounded correctly, then shifted by PyTorch 2.13's error in units in the last place,
stored for every T up to MOST_TIMESTEPS. That gives the same numbers on every machine, without PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np

MOST_TIMESTEPS = 1000
OFFSET = 0.008  # keeps the noise of the first steps above zero
SMALLEST_RATIO = 0.001
UNITS = Path(__file__).with_name("schedule.npz")


@dataclass(frozen=True)
class Schedule:
    """Tables by timestep, (T,) float32 each: of a single step, and of all steps up to it."""

    log_alpha: np.ndarray
    log_1_min_alpha: np.ndarray
    log_cumprod_alpha: np.ndarray
    log_1_min_cumprod_alpha: np.ndarray


@cache
def schedule(timesteps: int) -> Schedule:
    """Compute the tables for T timesteps, 1 .. MOST_TIMESTEPS."""
    log_alpha = np.log(alphas(timesteps).astype(np.float64))
    log_cumprod = np.cumsum(log_alpha)
    tables = (log_alpha, _log_1_min(log_alpha), log_cumprod, _log_1_min(log_cumprod))
    made = Schedule(*(table.astype(np.float32) for table in tables))
    for field in fields(made):
        getattr(made, field.name).setflags(write=False)  # shared by all callers
    return made


def alphas(timesteps: int) -> np.ndarray:
    """Compute alpha with PyTorch's rounding, (T,) float32."""
    start = timesteps * (timesteps - 1) // 2  # 1 + 2 + ... of the smaller T
    units = _units()[start : start + timesteps]
    return (rounded_alphas(timesteps).view(np.int32) + units).view(np.float32)


def rounded_alphas(timesteps: int) -> np.ndarray:
    """Compute alpha with every operation correctly rounded, (T,) float32."""
    f32 = np.float32
    angle = (np.arange(timesteps + 1, dtype=f32) / f32(timesteps) + f32(OFFSET)) / f32(1 + OFFSET)
    angle = angle * f32(math.pi) * f32(0.5)
    survival = np.cos(angle.astype(np.float64)).astype(f32) ** 2
    survival = survival / survival[0]
    return np.sqrt(np.clip(survival[1:] / survival[:-1], f32(SMALLEST_RATIO), f32(1)))


@cache
def _units() -> np.ndarray:
    """Load the int8 corrections in units in the last place: those of T = 1, then T = 2, and so on."""
    with np.load(UNITS) as stored:
        return stored["units"]


def _log_1_min(log_values: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(1 - np.exp(log_values), 1e-30))
