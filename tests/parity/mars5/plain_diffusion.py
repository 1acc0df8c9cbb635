"""MARS5's reverse diffusion in its plainest form, to compare both sides with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.sides import Side
from tts_core.mars5.diffusion import Cells, Diffusion, numbers_for, schedule
from tts_core.nn.noise import Noise


@dataclass(frozen=True)
class Plain:
    """States of a run, (T + 1, S, Q), and the margin of its closest draw."""

    states: np.ndarray
    margin: float


def plain_run(
    side: Side,
    exact: Any,
    text: np.ndarray,
    reference: np.ndarray,
    cells: Cells,
    settings: Diffusion,
    noise: Noise,
) -> Plain:
    """A run by the formulas: one-hot rows, every cell, one call per branch; NumPy in float64."""
    states, margins, k = [cells.codes.astype(np.int64)], [], exact.config.n_classes
    for place, t in enumerate(range(settings.timesteps - 1, -1, -1)):
        x = states[-1]
        logits = [
            _logits(side, exact, text, reference, x, t, settings.timesteps, drop=drop) for drop in (0, 1)
        ]
        mixture = (
            settings.guidance_w * logits[0] + (1 - settings.guidance_w) * logits[1]
        ) / settings.x_0_temp
        log_p = _log_softmax(_posterior(_log_softmax(mixture), x, t, settings.timesteps))
        numbers = numbers_for(noise, settings.draws, place, cells, k, last=t == 0).astype(np.float64)
        known = _q_pred(_one_hot(cells.clean, k), t, settings.timesteps) if t else None
        per_class = settings.draws == "per class"
        unknown, gap = _largest(log_p + (numbers[0] if per_class else hashed_gumbel(numbers, k)))
        margins.append(gap[~cells.known].min())
        if per_class:
            after, gap = (cells.clean, None) if known is None else _largest(known + numbers[1])
            margins += [] if gap is None else [gap[cells.known].min()]
        else:
            after = cells.clean if known is None else _kept(cells.clean, known, numbers)
        new = np.where(cells.known, after, unknown)
        if t > settings.q0_override_steps:
            new[:, 0] = cells.clean[:, 0]
        states.append(new)
    return Plain(np.stack(states), float(min(margins)))


def hashed_bits(numbers: np.ndarray, k: int) -> np.ndarray:
    """The hash, in Python's own integers. (2, ...) uniform numbers of 23 bits → (..., K) int64."""
    mask = 2**32 - 1

    def shifted(x: np.ndarray, shift: int) -> np.ndarray:
        """x ^ x >> shift, with sign extension."""
        return x ^ (((x ^ 2**31) - 2**31 >> shift) & mask)

    first, second = np.floor(numbers.astype(np.float64) * 2**23).astype(np.int64)[..., None]
    x = (first + np.arange(k) * 0x9E3779B1) & mask
    x = (shifted(x, 16) * 0x21F0AAAD + second * 0x85EBCA77) & mask
    return shifted((shifted(x, 15) * 0xD35A2D97) & mask, 15)


def hashed_gumbel(numbers: np.ndarray, k: int) -> np.ndarray:
    """(2, ...) → (..., K) float64."""
    return -np.log(-np.log1p(-((hashed_bits(numbers, k) | 1) / 2.0**31)))


def _logits(
    side: Side,
    exact: Any,
    text: np.ndarray,
    reference: np.ndarray,
    x: np.ndarray,
    t: int,
    timesteps: int,
    *,
    drop: int,
) -> np.ndarray:
    speaker = exact.no_speaker() if drop else exact.speaker(side.array(reference.T[None]))
    source = exact.read(side.array(text[None]), speaker, frames=len(x), timesteps=timesteps)
    return side.numpy(exact(side.array(x[None]), source, side.array(np.array([t]))))[0]


def _one_hot(codes: np.ndarray, k: int) -> np.ndarray:
    return np.log(np.maximum(np.eye(k)[codes], 1e-7))


def _log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


def _q_pred(log_p: np.ndarray, t: int, timesteps: int) -> np.ndarray:
    tables = schedule(timesteps)
    rest = float(tables.log_1_min_cumprod_alpha[t]) - np.log(log_p.shape[-1])
    return np.logaddexp(log_p + float(tables.log_cumprod_alpha[t]), rest)


def _posterior(log_x0: np.ndarray, x: np.ndarray, t: int, timesteps: int) -> np.ndarray:
    tables, k = schedule(timesteps), log_x0.shape[-1]
    below = log_x0 if t == 0 else _q_pred(log_x0, t - 1, timesteps)
    rest = float(tables.log_1_min_alpha[t]) - np.log(k)
    return below + np.logaddexp(_one_hot(x, k) + float(tables.log_alpha[t]), rest)


def _largest(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    falling = -np.sort(-scores, axis=-1)
    return scores.argmax(axis=-1), falling[..., 0] - falling[..., 1]


def _kept(clean: np.ndarray, log_p: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    p = np.exp(_log_softmax(log_p))
    stay = np.take_along_axis(p, clean[..., None], axis=-1)[..., 0]
    other = np.floor(numbers[1] * (log_p.shape[-1] - 1)).astype(np.int64)
    return np.where(numbers[0] < stay, clean, other + (other >= clean))
