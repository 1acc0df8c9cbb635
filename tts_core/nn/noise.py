"""Random numbers: one source per text, addressed by step, so that a text is independent of its batch.

A source has `uniform(step, shape) -> float32 array, strictly between 0 and 1`. `step` counts the rows that
its own text has generated, from 0. Both sides use the same numbers, so a seed gives the same speech on every
backend; a draw of 9 x 1028 numbers takes about 40 microseconds, far less than a decoder step, so no second
generator on the device is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar, cast

import numpy as np

from tts_core.errors import UsageError
from tts_core.printable import counted

Number = TypeVar("Number", bound=int | None)


class Noise(Protocol):
    """A source of uniform numbers for one text."""

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Draw float32 numbers in (0, 1) for generated row `step`; the same call gives the same numbers."""
        ...


class NormalNoise(Protocol):
    """A source of normally distributed numbers for one waveform."""

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        """Draw float32 numbers of mean 0 and variance 1 for `row`; the same call gives the same numbers."""
        ...


class HostNoise:
    """Philox numbers keyed by `seed` (0 .. 2**64 - 1), with the step as counter."""

    def __init__(self, seed: int):
        if not 0 <= seed < 2**64:
            raise UsageError(f"seed: {seed} is outside 0 .. 2**64 - 1")
        self.seed = seed

    def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
        """Draw 23 random bits plus one half: values from 2**-24 to 1 - 2**-24, all exact in float32."""
        return self._uniform([0, 0, 0, step], shape)

    def normal(self, row: int, shape: tuple[int, ...]) -> np.ndarray:
        """Apply the Box-Muller transform to uniform numbers that `uniform` never returns; within ±5.8."""
        radius, angle = self._uniform([0, 0, 1, row], (2, *shape)).astype(np.float64)
        return (np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)).astype(np.float32)

    def _uniform(self, counter: list[int], shape: tuple[int, ...]) -> np.ndarray:
        bits = np.random.Generator(np.random.Philox(key=self.seed, counter=counter))
        whole = bits.integers(0, 1 << 23, size=shape, dtype=np.uint32)
        return ((whole + np.float32(0.5)) * np.float32(2.0**-23)).astype(np.float32)


def per_text(noise: Noise | Sequence[Noise] | None, seeds: Sequence[int], what: str = "text") -> list[Noise]:
    """Return one source per text, or piece: those given, one shared by all, or new ones from `seeds`.

    what: "text" or "piece", in messages. Raises UsageError for another number of sources.
    """
    if noise is None:
        return [HostNoise(seed) for seed in seeds]
    if isinstance(noise, Sequence):
        if len(noise) != len(seeds):
            raise UsageError(
                f"noise: {counted(len(noise), 'source')} for {counted(len(seeds), what)}; "
                f"give one, or one per {what}"
            )
        return list(noise)
    return [noise] * len(seeds)


def numbers_per_text(name: str, value: Number | Sequence[Number], texts: int) -> list[Number]:
    """Return one whole number, or None, per text. Raises UsageError naming the argument."""
    values = list(value) if isinstance(value, Sequence | np.ndarray) else [value] * texts
    if len(values) != texts:
        raise UsageError(
            f"{name}: {counted(len(values), 'value')} for {counted(texts, 'text')}; "
            "give one number, or one per text"
        )
    return cast(list[Number], [None if value is None else int(value) for value in values])


def piece_seed(seed: int, index: int) -> int:
    """Derive the seed of a text's piece, independent of the other pieces; the first one's is `seed`."""
    if index == 0:
        return seed
    return int(np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64)[0])


def check_seed(seed: int) -> int:
    """Return the seed as a Python int. Raises UsageError unless it is a whole number in 0 .. 2**64 - 1."""
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise UsageError(f"seed: {seed!r} is not a whole number in 0 .. 2**64 - 1")
    return int(seed)
