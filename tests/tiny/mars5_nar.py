"""Inputs of MARS5's small residual transformer."""

import numpy as np

from tests.tiny.networks import nar_config

TEXT = np.array([3, 17, 0, 30, 5, 5, 11], np.int32)


def codes(frames: int, seed: int = 0) -> np.ndarray:
    """(Q, frames)."""
    sizes = nar_config()
    random = np.random.default_rng(seed)
    return random.integers(0, sizes.n_classes, (sizes.n_codebooks, frames)).astype(np.int32)
