"""Two ways to draw a cell, one distribution; and numbers at the ends of their range."""

from typing import Any

import numpy as np
import pytest

from tests.parity.mars5_nar_sides import code
from tests.parity.sides import SIDES, Side
from tts_core.mars5_diffusion import constants, gumbel
from tts_core.noise import HostNoise

EVERY_SIDE = pytest.mark.parametrize("side", list(SIDES.values()), ids=list(SIDES))
WAYS = pytest.mark.parametrize("way", ["per cell", "per class"])
CELLS, K, T = 30000, 7, 20
LARGEST_CHI2 = 38.0  # of at most 6 degrees of freedom: exceeded once in a million


def drawn(side: Side, way: str, log_p: np.ndarray, seed: int) -> np.ndarray:
    diffusion = code(side).diffusion
    rows = side.array(np.broadcast_to(log_p, (CELLS, K)).astype(np.float32))
    if way == "per cell":
        return side.numpy(diffusion.draw_per_cell(rows, side.array(HostNoise(seed).uniform(0, (CELLS,)))))
    numbers = gumbel(HostNoise(seed).uniform(0, (CELLS, K)))
    return side.numpy(diffusion.draw_per_class(rows, side.array(numbers)))


def known(side: Side, way: str, t: int, clean: int, seed: int) -> np.ndarray:
    diffusion, noise = code(side).diffusion, HostNoise(seed)
    at = diffusion.at_timestep(side.array(constants(T, K, 0)), side.array(np.array([t])))
    cells = side.array(np.full((CELLS, 1), clean))
    if way == "per cell":
        numbers = side.array(noise.uniform(0, (2, CELLS, 1)))
        return side.numpy(diffusion.noised_per_cell(cells, numbers, at, K))
    return side.numpy(
        diffusion.noised_per_class(cells, side.array(gumbel(noise.uniform(0, (CELLS, 1, K)))), at)
    )


def chi2(found: np.ndarray, p: np.ndarray) -> float:
    counts = np.bincount(found.ravel(), minlength=len(p))
    assert len(counts) == len(p), f"classes up to {found.max()}"
    return float((((counts - CELLS * p) ** 2) / (CELLS * p)).sum())


@EVERY_SIDE
@WAYS
@pytest.mark.parametrize("seed", [0, 1])
def test_unknown_cells(side: Side, way: str, seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(K, 0.7)) + 1e-3
    p /= p.sum()
    found = drawn(side, way, np.log(p), seed)
    assert chi2(found, p) < LARGEST_CHI2
    assert chi2(found, np.roll(p, 1)) > 100 * LARGEST_CHI2, "this test sees nothing"


@EVERY_SIDE
@WAYS
@pytest.mark.parametrize("clean", [0, 3, K - 1])
@pytest.mark.parametrize("t", [1, 10, T - 1])
def test_known_cells(side: Side, way: str, t: int, clean: int) -> None:
    """Against the formula: alpha of the clean class, the rest spread evenly over all."""
    x = (np.arange(T + 1) / T + 0.008) / 1.008 * np.pi / 2
    ratio = np.clip((np.cos(x[1:]) / np.cos(x[:-1])) ** 2, 0.001, 1)
    alpha = np.sqrt(ratio).prod(where=np.arange(T) <= t)
    p = np.full(K, (1 - alpha) / K)
    p[clean] += alpha
    assert chi2(known(side, way, t, clean, seed=t), p) < LARGEST_CHI2


@EVERY_SIDE
@WAYS
def test_known_cells_end_clean(side: Side, way: str) -> None:
    np.testing.assert_array_equal(known(side, way, 0, 4, seed=0), np.full((CELLS, 1), 4))


@EVERY_SIDE
@pytest.mark.parametrize("k", [2, 5, 1025])
def test_ends_of_uniform_numbers(side: Side, k: int) -> None:
    """The smallest and largest that there are draw the first and last class that can be, never one that
    cannot; the Gumbel numbers of 0 and 1 themselves are finite."""
    ends = np.array([2.0**-24, 1 - 2.0**-24], np.float32)
    p = np.full((2, k), 1 / k)
    diffusion = code(side).diffusion

    def per_cell(log_p: np.ndarray) -> list[int]:
        rows = side.array(log_p.astype(np.float32))
        return side.numpy(diffusion.draw_per_cell(rows, side.array(ends))).tolist()

    assert per_cell(np.log(p)) == [0, k - 1]
    if k > 4:  # the first and the last class cannot be
        p[:, [0, -1]] = 0
        with np.errstate(divide="ignore"):
            assert per_cell(np.log(p / p.sum(axis=-1, keepdims=True))) == [1, k - 2]
    numbers = gumbel(np.array([[0.0] * k, [1.0] * k], np.float32))
    assert np.isfinite(numbers).all()
    scores = np.log(np.full((2, k), 1e-3)).astype(np.float32)
    scores[:, 1] += 0.01
    best = diffusion.draw_per_class(side.array(scores), side.array(numbers))
    assert side.numpy(best).tolist() == [1, 1]
    at: Any = diffusion.at_timestep(side.array(constants(T, k, 0)), side.array(np.array([5])))
    for clean in (0, k - 1):
        cells = side.array(np.full((2, 2), clean))
        uniform = side.array(np.stack([np.full((2, 2), ends[1]), np.stack([ends, ends])]).astype(np.float32))
        others = side.numpy(diffusion.noised_per_cell(cells, uniform, at, k))
        rest = [c for c in range(k) if c != clean]
        assert others.tolist() == [[rest[0], rest[-1]]] * 2
