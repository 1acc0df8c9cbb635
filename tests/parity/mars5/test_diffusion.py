"""Both ways to draw a cell have one distribution, also for numbers at the ends of their range."""

from typing import Any

import numpy as np
import pytest

from tests.parity.mars5.plain_diffusion import hashed_bits, hashed_gumbel
from tests.sides import BY_PACKAGE, PORT, Side
from tests.tolerance import EPS, FLOOR
from tts_core.mars5.diffusion import constants, gumbel
from tts_core.nn.noise import HostNoise

EVERY_SIDE = pytest.mark.parametrize("side", list(BY_PACKAGE.values()), ids=list(BY_PACKAGE))
WAYS = pytest.mark.parametrize("way", ["per cell", "per class"])
CELLS, K, T = 30000, 7, 20
K_MARS5 = 1025
ENDS = np.array([2.0**-24, 1 - 2.0**-24], np.float32)
LARGEST_CHI2_OF_255 = 370.0  # exceeded once in 400,000
LARGEST_CHI2 = 38.0  # of at most 6 degrees of freedom: exceeded once in a million


def drawn(side: Side, way: str, log_p: np.ndarray, seed: int) -> np.ndarray:
    diffusion = side.module("mars5.diffusion")
    rows = side.array(np.broadcast_to(log_p, (CELLS, K)).astype(np.float32))
    if way == "per cell":
        return side.numpy(diffusion.draw_per_cell(rows, side.array(HostNoise(seed).uniform(0, (2, CELLS)))))
    numbers = gumbel(HostNoise(seed).uniform(0, (CELLS, K)))
    return side.numpy(diffusion.draw_per_class(rows, side.array(numbers)))


def known(side: Side, way: str, t: int, clean: int, seed: int) -> np.ndarray:
    diffusion, noise = side.module("mars5.diffusion"), HostNoise(seed)
    at = diffusion.at_timestep(side.array(constants(T, K, 0)), side.array(np.array([t])))
    cells = side.array(np.full((CELLS, 1), clean))
    if way == "per cell":
        numbers = side.array(noise.uniform(0, (2, CELLS, 1)))
        return side.numpy(diffusion.noised_per_cell(cells, numbers, at, K))
    return side.numpy(
        diffusion.noised_per_class(cells, side.array(gumbel(noise.uniform(0, (CELLS, 1, K)))), at)
    )


def chi2(found: np.ndarray, p: np.ndarray) -> float:
    counts, cells = np.bincount(found.ravel(), minlength=len(p)), found.size
    assert len(counts) == len(p), f"classes up to {found.max()}"
    return float((((counts - cells * p) ** 2) / (cells * p)).sum())


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
@pytest.mark.parametrize("k", [2, 7, 1025])
def test_the_hash(side: Side, k: int) -> None:
    """Bit for bit as with Python's integers, the ends of the host's numbers included."""
    uniform = HostNoise(5).uniform(0, (2, 40, 3))
    uniform[:, 0, 0], uniform[:, 0, 1], uniform[0, 0, 2] = ENDS[0], ENDS[1], ENDS[1]
    numbers = side.module("mars5.class_numbers")
    found = side.numpy(numbers.hashed(side.array(uniform), k))
    np.testing.assert_array_equal(found, hashed_bits(uniform, k))
    found, exact = side.numpy(numbers.class_gumbel(side.array(uniform), k)), hashed_gumbel(uniform, k)
    usual = exact > -1.5  # below, where a class rarely wins, 1 - u has few bits
    rounding = FLOOR * EPS * np.abs(exact[usual]).max()  # of two logarithms of numbers that are equal
    np.testing.assert_allclose(found[usual], exact[usual], rtol=0, atol=rounding)
    assert usual.mean() > 0.95
    assert not np.isnan(found).any()
    assert (found[~usual] < -1.49).all()


def test_hashed_numbers_are_even_and_their_own() -> None:
    """Uniform overall and in the tails that rare classes need; classes, cells and numbers are independent."""
    cells = 1500
    for uniform in (HostNoise(2).uniform(0, (2, cells)), in_order(cells), in_order(cells)[::-1]):
        bits = hashed_bits(uniform, K_MARS5)
        part = bits / 2.0**31
        for low in (1e-5, 1e-3):
            expected = low * part.size
            for count in ((part < low).sum(), (part >= 1 - low).sum()):
                assert abs(count - expected) < 5 * expected**0.5
        for shift in (0, 11, 23):
            assert chi2(bits >> shift & 255, np.full(256, 1 / 256)) < LARGEST_CHI2_OF_255
        ahead = part[:, 1:], part[1:], part[: cells // 2]
        neighbor = part[:, :-1], part[:-1], part[cells // 2 :]
        for one, other in zip(ahead, neighbor, strict=True):
            assert abs(((one - 0.5) * (other - 0.5)).mean()) * 12 * one.size**0.5 < 5


def in_order(cells: int) -> np.ndarray:
    """Numbers that differ in their last bit from cell to cell; the second number is constant."""
    return np.stack([(np.arange(cells) + 0.5) / 2**23, np.full(cells, 0.5)]).astype(np.float32)


@EVERY_SIDE
def test_rare_classes_are_drawn_as_often_as_they_should_be(side: Side) -> None:
    """A thousand classes share one in a hundred, as in the last steps of a run."""
    p = np.full(K_MARS5, 0.01 / (K_MARS5 - 1))
    p[500] = 0.99
    rows = side.array(np.broadcast_to(np.log(p), (2000, K_MARS5)).astype(np.float32))
    found = np.concatenate(
        [
            side.numpy(
                side.module("mars5.diffusion").draw_per_cell(
                    rows, side.array(HostNoise(9).uniform(step, (2, 2000)))
                )
            )
            for step in range(10)
        ]
    )
    others = found[found != 500]
    assert abs(len(others) - 200) < 5 * 200**0.5
    halves = np.bincount(others * 4 // K_MARS5, minlength=4)
    assert np.abs(halves - len(others) / 4).max() < 5 * (len(others) / 4) ** 0.5


@pytest.mark.parametrize("moved", [1e-6, 1e-2])
def test_roundings_of_probabilities_rarely_change_a_class(moved: float) -> None:
    """Gaps between the best two of a flat row's sums have density 1 at 0; two classes moved by `moved` x
    normal numbers overtake each other in moved / sqrt(pi) of all cells. Cumulated sums have 1,025 edges.
    """
    side, cells, random = PORT, 6000, np.random.default_rng(1)
    rows = random.normal(0, 0.1, (cells, K_MARS5)).astype(np.float32)
    uniform = HostNoise(3).uniform(0, (2, cells))
    pair = [rows, rows + (moved * random.standard_normal(rows.shape)).astype(np.float32)]
    one, other = (
        side.numpy(side.module("mars5.diffusion").draw_per_cell(side.array(log_p), side.array(uniform)))
        for log_p in pair
    )
    expected, changed = cells * moved / np.pi**0.5, int((one != other).sum())
    assert abs(changed - expected) <= 5 * max(expected, 0.2) ** 0.5


@EVERY_SIDE
@pytest.mark.parametrize("k", [2, 5, 1025])
def test_ends_of_uniform_numbers(side: Side, k: int) -> None:
    """The smallest and largest numbers never draw an impossible class; the Gumbel numbers of 0 and 1 are
    finite.
    """
    ends = np.array([ENDS, ENDS[::-1]], np.float32)
    p, diffusion = np.full((2, k), 1 / k), side.module("mars5.diffusion")
    if k > 4:  # only two in the middle are possible
        p[:] = 0
        p[:, 2:4] = 0.5
    with np.errstate(divide="ignore"):
        log_p = np.log(p).astype(np.float32)
    drawn = side.numpy(diffusion.draw_per_cell(side.array(log_p), side.array(ends)))
    assert set(drawn.tolist()) <= ({2, 3} if k > 4 else set(range(k)))
    numbers = gumbel(np.array([[0.0] * k, [1.0] * k], np.float32))
    assert np.isfinite(numbers).all()
    scores = np.log(np.full((2, k), 1e-3)).astype(np.float32)
    scores[:, 1] += 0.01
    best = diffusion.draw_per_class(side.array(scores), side.array(numbers))
    assert side.numpy(best).tolist() == [1, 1]
    at: Any = diffusion.at_timestep(side.array(constants(T, k, 0)), side.array(np.array([5])))
    for clean in (0, k - 1):
        cells = side.array(np.full((2, 2), clean))
        uniform = side.array(np.stack([np.full((2, 2), ENDS[1]), np.stack([ENDS, ENDS])]).astype(np.float32))
        others = side.numpy(diffusion.noised_per_cell(cells, uniform, at, k))
        rest = [c for c in range(k) if c != clean]
        assert others.tolist() == [[rest[0], rest[-1]]] * 2
