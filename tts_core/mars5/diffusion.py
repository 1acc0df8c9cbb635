"""The host's part of MARS5's diffusion: settings, noise schedule, initial cells, constants and random draws.

A cell is one codebook of one frame. Known cells (the first codebook, and in a deep clone every codebook of
the reference) are noised to each timestep's level; the others are drawn from the network's posterior.

Two ways to draw:
- "per cell", the default: two numbers per cell. A known cell stays or becomes any other class; for an unknown
  cell the device hashes them into a Gumbel number for each class.
- "per class": a Gumbel number for every class of every cell, known or not, unknown cells first, as in
  upstream: 700 times as many numbers for the same distribution. Use it to compare codes with upstream's.

The schedule has the log-probabilities that a code survives a timestep: a cosine schedule (Nichol and
Dhariwal, "Improved denoising diffusion probabilistic models", arXiv:2102.09672)
whose alpha is the square root of the usual one. MARS5 computes alpha with PyTorch's float32 cosine and square
root on an x86 CPU, which are not correctly rounded; the last bit changes small entries of log(1 - alpha) by
up to 3e-3. Here alpha is rounded correctly, then shifted by PyTorch 2.13's error in units in the last place,
stored for every T up to MOST_TIMESTEPS. That gives the same numbers on every machine, without PyTorch.

The hash derives a random number for every class of a cell: the host draws two numbers per cell. The
device mixes the first number and the class, then the second number,
in two rounds of multiplying and xor-shifting 32-bit integers, which are exact on every backend. Multipliers:
"lowbias32" of Chris Wellons's hash-prospector (public domain), and golden ratios for the steps between
classes and between second numbers. Unlike there, shifts are arithmetic: frameworks have no logical shift of
signed integers in one operation. The result has 31 bits and no sign bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from tts_core.errors import UsageError
from tts_core.nn.noise import Noise

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


Draws = Literal["per cell", "per class"]

ONE_HOT_FLOOR = 1e-7  # probability of every other class in upstream's one-hot codes
GUMBEL_FLOOR = 1e-7  # lower bound of a uniform number, and of its negative logarithm
CERTAIN = 1e9  # added to a class's Gumbel number to force it
FIRST_DRAW = 2**32  # first step in a noise source; the autoregressive network uses much lower steps of it


@dataclass(frozen=True)
class Diffusion:
    """Settings of a diffusion run, in the ranges of Mars5Options; the defaults are upstream's.

    guidance_w: 1 turns guidance off.
    """

    timesteps: int = 200
    guidance_w: float = 3.0
    x_0_temp: float = 0.7
    q0_override_steps: int = 20  # down to this timestep the first codebook stays clean between steps
    draws: Draws = "per cell"

    @property
    def guided(self) -> bool:
        """True if unconditional rows run too."""
        return self.guidance_w != 1


@dataclass(frozen=True)
class Cells:
    """The initial state of a run: arrays (S, Q), with the prompt's frames before the frames to generate.

    codes: int32, the known codes and noise.
    clean: int32, the known codes, 0 elsewhere.
    known: bool.
    """

    codes: np.ndarray
    clean: np.ndarray
    known: np.ndarray

    def __post_init__(self) -> None:
        assert self.codes.shape == self.clean.shape == self.known.shape
        assert self.known[:, 0].all(), "the first codebook is known everywhere"
        if self.known.all():
            raise UsageError("codes: the autoregressive network generated no frame; nothing is left to draw")

    @property
    def unknown_from(self) -> tuple[int, int]:
        """The first frame and the first codebook with an unknown cell; those before need no logits."""
        frames, books = np.nonzero(~self.known)
        return int(frames.min()), int(books.min())


def make_cells(
    first: np.ndarray, noise: np.ndarray, prompt: np.ndarray | None = None, *, n_classes: int
) -> Cells:
    """Build the cells of a run.

    first: (G,), the first codebook of the frames to generate.
    noise: (Q, G), initial codes of all codebooks.
    prompt: (Q, P), known in full, for a deep clone.
    Raises UsageError for codes outside 0 .. n_classes-1, and if there are no frames.
    """
    for name, codes in (("first codebook", first), ("noise", noise), ("prompt", prompt)):
        if codes is not None and codes.size and not 0 <= codes.min() <= codes.max() < n_classes:
            raise UsageError(
                f"{name}: codes from {codes.min()} to {codes.max()}, expected 0 .. {n_classes - 1}"
            )
    made = noise.T.astype(np.int32)
    made[:, 0] = first
    clean = np.zeros_like(made)
    clean[:, 0] = first
    known = np.zeros(made.shape, bool)
    known[:, 0] = True
    if prompt is None:
        return Cells(made, clean, known)
    given = prompt.T.astype(np.int32)
    return Cells(
        np.concatenate([given, made]),
        np.concatenate([given, clean]),
        np.concatenate([np.ones(given.shape, bool), known]),
    )


def first_noise(noise: Noise, codebooks: int, frames: int, n_classes: int) -> np.ndarray:
    """Draw uniformly random codes. → (Q, G) int32."""
    return (noise.uniform(FIRST_DRAW, (codebooks, frames)) * n_classes).astype(np.int32)


def numbers_for(
    noise: Noise, draws: Draws, index: int, cells: Cells, n_classes: int, *, last: bool
) -> np.ndarray:
    """Draw the random numbers of a step. index: the step's index in the run.  last: it leads to clean codes.

    → (2, S, Q) uniform numbers for "per cell"; (2, S, Q, K) Gumbel numbers for "per class", those of unknown
    cells first.
    """
    frames, books = cells.codes.shape
    if draws == "per cell":
        return noise.uniform(FIRST_DRAW + 1 + index, (2, frames, books))
    numbers = np.zeros((2, frames, books, n_classes), np.float32)
    for which in range(1 if last else 2):  # upstream draws nothing for known cells in the last step
        uniform = noise.uniform(FIRST_DRAW + 1 + 2 * index + which, (1, frames, books, n_classes))
        numbers[which] = gumbel(uniform[0])
    return numbers


def gumbel(uniform: np.ndarray) -> np.ndarray:
    """Turn uniform numbers, 0 and 1 included, into Gumbel numbers; on the host, whose log is exact near 1."""
    floor = np.float32(GUMBEL_FLOOR)
    return -np.log(np.maximum(-np.log(np.maximum(uniform, floor)), floor))


def constants(timesteps: int, n_classes: int, q0_override_steps: int) -> np.ndarray:
    """Compute seven numbers per timestep, (T, 7) float64, in the order of `Timestep` on both sides.

    keep, rest: logarithms of the weights of the clean class, and of every class, one step below.
    hot, cold: log-probabilities of this step's noise for the cell's current class and for any other.
    edge: log-ratio of the probability of a known cell's own class to that of another at this level.
    stay: the probability that a known cell keeps its class.
    pinned: 1 if the first codebook is reset to its clean codes after the step.
    """
    tables, log_k = schedule(timesteps), math.log(n_classes)
    step = tables.log_alpha.astype(np.float64), tables.log_1_min_alpha.astype(np.float64) - log_k
    all_so_far = (
        tables.log_cumprod_alpha.astype(np.float64),
        tables.log_1_min_cumprod_alpha.astype(np.float64) - log_k,
    )
    missed = math.log(ONE_HOT_FLOOR)
    below = [
        np.concatenate([[first], table[:-1]]) for first, table in zip((0, -math.inf), all_so_far, strict=True)
    ]
    hot, cold = (np.logaddexp(log_p + step[0], step[1]) for log_p in (0, missed))
    own, other = (np.logaddexp(log_p + all_so_far[0], all_so_far[1]) for log_p in (0, missed))
    edge, stay = own - other, 1 / (1 + (n_classes - 1) * np.exp(other - own))
    edge[0], stay[0] = CERTAIN, 1  # after the last step known cells are clean
    pinned = np.arange(timesteps) > q0_override_steps
    return np.stack([*below, hot, cold, edge, stay, pinned], axis=1)


NOISE_BITS = 23  # of a number from the host, see tts_core/nn/noise.py
HASH_BITS = 31


def signed(bits: int) -> int:
    """Interpret 32 bits as a signed integer."""
    return bits - 2**32 if bits >= 2**31 else bits


CLASS_STEP = signed(0x9E3779B1)
CELL_STEP = signed(0x85EBCA77)
ROUNDS = ((16, signed(0x21F0AAAD)), (15, signed(0xD35A2D97)))  # shift, multiplier
LAST_SHIFT = 15
