"""Clips for codecs whose codes rounding may not decide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.tolerance import FACTOR


def clip(seed: int, batch: int, length: int) -> np.ndarray:
    """Noise under a slow envelope; the second item is quiet. (B, L)."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(0, 0.3, (batch, length)) * (1.2 + np.sin(np.arange(length) / 97))
    samples[1:] *= 0.1
    return samples.astype(np.float32)


def telling_clip(length: int, lead: Callable[[np.ndarray], float]) -> np.ndarray:
    """The first clip of that length without a code that rounding may decide.

    lead: factor by which the rounding of a clip's latents can grow before any code changes.
    """
    for seed in range(length, length + 30):
        samples = clip(seed, 2, length)
        if lead(samples) > FACTOR:
            return samples
    raise AssertionError(f"every clip of {length} samples has a near-tie")


def assert_codebooks_are_used(codes: np.ndarray, size: int) -> None:
    """Require over half of the entries of every codebook, so that equal codes are evidence."""
    for q in range(codes.shape[1]):
        assert len(np.unique(codes[:, q])) > size / 2
