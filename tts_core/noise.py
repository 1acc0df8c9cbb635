"""Where randomness comes from: one source per text, addressed by step, so that neighbors in a batch change
nothing.

A source has `uniform(step, shape) -> float32 array, strictly between 0 and 1`. `step` counts the rows that
its own text has generated, from 0. The same numbers feed both sides, which makes a seed mean the same speech
on every backend; a draw of 9 x 1028 numbers costs some 40 microseconds, far below a decoder step, so there is
no second, device-side generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tts_core.errors import UsageError


class Noise(Protocol):
    """Uniform numbers for one text."""

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Float32 numbers in (0, 1) for generated row `step`; the same call gives the same numbers."""
        ...


class NormalNoise(Protocol):
    """Normally distributed numbers for one waveform."""

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        """Float32 numbers of mean 0 and variance 1 for draw `row`; the same call gives the same numbers."""
        ...


class HostNoise:
    """Philox numbers keyed by `seed` (0 .. 2**64 - 1), with the step as counter."""

    def __init__(self, seed: int):
        if not 0 <= seed < 2**64:
            raise UsageError(f"seed: {seed} is outside 0 .. 2**64 - 1")
        self.seed = seed

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """23 random bits and a half: the smallest value is 2**-24, the largest 1 - 2**-24, both exact in
        float32.
        """
        return self._uniform([0, 0, 0, step], shape)

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        """Box and Muller's transform of uniform numbers, none of which `uniform` gives; within ±5.8."""
        radius, angle = self._uniform([0, 0, 1, row], (2, *shape)).astype(np.float64)
        return (np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)).astype(np.float32)

    def _uniform(self, counter: list[int], shape: tuple[int, ...]) -> np.ndarray:
        bits = np.random.Generator(np.random.Philox(key=self.seed, counter=counter))
        whole = bits.integers(0, 1 << 23, size=shape, dtype=np.uint32)
        return ((whole + np.float32(0.5)) * np.float32(2.0**-23)).astype(np.float32)


def per_text(noise: Noise | Sequence[Noise] | None, seeds: Sequence[int]) -> list[Noise]:
    """One source for each text: those given, one shared by all, or fresh ones from `seeds`."""
    if noise is None:
        return [HostNoise(seed) for seed in seeds]
    if isinstance(noise, Sequence):
        if len(noise) != len(seeds):
            raise UsageError(f"noise: {len(noise)} sources for {len(seeds)} texts; give one, or one per text")
        return list(noise)
    return [noise] * len(seeds)


def numbers_per_text(name: str, value: int | Sequence[int], texts: int) -> list[int]:
    """One whole number for each text. Raises UsageError naming the argument."""
    values = list(value) if isinstance(value, Sequence | np.ndarray) else [value] * texts
    if len(values) != texts:
        raise UsageError(f"{name}: {len(values)} values for {texts} texts; give one number, or one per text")
    return [int(one) for one in values]


def piece_seed(seed: int, place: int) -> int:
    """The seed of a text's piece: a stream of its own, whatever stands around it; the first's is `seed`."""
    if place == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)[0])


def check_seed(seed: int) -> int:
    """The seed as a number of Python's. Raises UsageError for what is no whole number in 0 .. 2**64 - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise UsageError(f"seed: {seed!r} is not a whole number in 0 .. 2**64 - 1")
    return int(seed)
