"""Rotary positions and the cache of keys and values: both sides against the formula, and against all rows."""

import numpy as np
import pytest

from tests.sides import BY_PACKAGE, PORT, YARDSTICK
from tests.tolerance import assert_within


@pytest.mark.parametrize(("start", "length"), [(0, 1), (0, 31), (1, 7), (2049, 1), (3055, 17)])
@pytest.mark.parametrize("head_dim", [2, 14, 128])
def test_rope(start: int, length: int, head_dim: int) -> None:
    """Against the formula in float64, late positions included, where a float32 angle has an error of 1e-4."""
    x = np.random.default_rng(2).normal(0, 1, (2, 3, length, head_dim)).astype(np.float32)
    half, positions = head_dim // 2, np.arange(start, start + length, dtype=np.float64)
    angles = positions[:, None] / 10000.0 ** (2 * np.arange(half) / head_dim)
    oracle = rotated(x.astype(np.float64), np.cos(angles), np.sin(angles))
    yardstick = rotated(x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))

    for side in (PORT, YARDSTICK):
        rope = side.module("layers.rope")
        positions = rope.RotaryPositions(3072, head_dim, 10000.0)
        turned = side.numpy(rope.rotate(side.array(x), positions(start, length)))
        assert_within(turned, yardstick, oracle, f"{side.kind} rope at {start}")


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


@pytest.mark.parametrize("name", BY_PACKAGE)
@pytest.mark.parametrize("pieces", [(1,) * 5, (256, 1), (255, 1, 1), (200, 57, 255, 3), (1, 600, 1)], ids=str)
def test_cache_returns_every_row_so_far(name: str, pieces: tuple[int, ...]) -> None:
    side, random = BY_PACKAGE[name], np.random.default_rng(3)
    cache = side.module("layers.cache").KeyValueCache()
    every = random.normal(0, 1, (2, 2, 3, sum(pieces), 5)).astype(np.float32)
    stop = 0
    for piece in pieces:
        start, stop = stop, stop + piece
        keys, values = cache.extend(*(side.array(rows[:, :, start:stop]) for rows in every))
        assert cache.length == stop
        np.testing.assert_array_equal(side.numpy(keys), every[0, :, :, :stop])
        np.testing.assert_array_equal(side.numpy(values), every[1, :, :, :stop])
