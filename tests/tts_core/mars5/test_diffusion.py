"""The host's part of MARS5's diffusion: refused settings, layout of cells, addresses of draws, constants."""

import math
from typing import Any

import numpy as np
import pytest

from tts_core.errors import UsageError
from tts_core.mars5.diffusion import (
    CERTAIN,
    FIRST_DRAW,
    Diffusion,
    constants,
    first_noise,
    gumbel,
    make_cells,
    numbers_for,
    schedule,
)
from tts_core.mars5.options import Mars5Options
from tts_core.nn.noise import HostNoise

FIRST, PROMPT = np.array([4, 0, 9, 2]), np.arange(6).reshape(3, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timesteps", 0),
        ("timesteps", 1001),
        ("timesteps", 2.5),
        ("cfg_scale", -0.1),
        ("cfg_scale", math.nan),
        ("x_0_temp", 0.0),
        ("x_0_temp", math.inf),
        ("q0_override_steps", -1),
        ("q0_override_steps", 0.5),
        ("draws", "all"),
    ],
)
def test_settings_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name}: "):
        Mars5Options(**{name: value})


def test_guidance_of_one_is_none() -> None:
    assert not Diffusion(guidance_w=1.0).guided
    assert Diffusion(guidance_w=0).guided
    assert Diffusion().guided


def test_cells_of_a_shallow_clone() -> None:
    noise = np.arange(12).reshape(3, 4)
    cells = make_cells(FIRST, noise, n_classes=12)
    np.testing.assert_array_equal(cells.codes, [[4, 4, 8], [0, 5, 9], [9, 6, 10], [2, 7, 11]])
    np.testing.assert_array_equal(cells.clean, [[4, 0, 0], [0, 0, 0], [9, 0, 0], [2, 0, 0]])
    np.testing.assert_array_equal(cells.known, [[True, False, False]] * 4)
    assert cells.unknown_from == (0, 1)
    assert noise.tolist() == np.arange(12).reshape(3, 4).tolist()


def test_cells_of_a_deep_clone() -> None:
    cells = make_cells(FIRST, np.zeros((3, 4), np.int32), PROMPT, n_classes=12)
    np.testing.assert_array_equal(cells.codes[:2], PROMPT.T)
    np.testing.assert_array_equal(cells.clean[:2], PROMPT.T)
    np.testing.assert_array_equal(cells.codes[2:, 0], FIRST)
    assert cells.known[:2].all()
    assert cells.known.sum() == 6 + 4
    assert cells.unknown_from == (2, 1)


@pytest.mark.parametrize("wrong", [-1, 12])
@pytest.mark.parametrize("where", ["first codebook", "noise", "prompt"])
def test_codes_outside_the_classes(where: str, wrong: int) -> None:
    given = {"first codebook": FIRST.copy(), "noise": np.zeros((3, 4), np.int32), "prompt": PROMPT.copy()}
    given[where].flat[1] = wrong
    with pytest.raises(UsageError, match=rf"^{where}: codes from .* expected 0 \.\. 11"):
        make_cells(given["first codebook"], given["noise"], given["prompt"], n_classes=12)


def test_no_frames() -> None:
    with pytest.raises(UsageError, match="generated no frame"):
        make_cells(np.zeros(0, np.int32), np.zeros((3, 0), np.int32), PROMPT, n_classes=12)


def test_every_draw_has_numbers_of_its_own() -> None:
    cells, asked = make_cells(FIRST, np.zeros((3, 4), np.int32), PROMPT, n_classes=12), []

    class Recorded(HostNoise):
        def uniform(self, step: int, shape: tuple[int, ...]) -> np.ndarray:
            asked.append((step - FIRST_DRAW, shape))
            return super().uniform(step, shape)

    noise = Recorded(3)
    first_noise(noise, 3, 4, 12)
    for place in range(3):
        numbers = numbers_for(noise, "per cell", place, cells, 12, last=place == 2)
        assert numbers.shape == (2, 6, 3)
        assert numbers.dtype == np.float32
    assert asked == [(0, (3, 4)), (1, (2, 6, 3)), (2, (2, 6, 3)), (3, (2, 6, 3))]
    asked.clear()
    every = [numbers_for(noise, "per class", place, cells, 12, last=place == 2) for place in range(3)]
    assert asked == [(step, (1, 6, 3, 12)) for step in range(1, 6)]
    assert len({numbers.tobytes() for numbers in every}) == 3
    assert not every[-1][1].any(), "the last step draws nothing for known cells"


def test_first_noise_is_every_class_alike() -> None:
    counts = np.bincount(first_noise(HostNoise(0), 8, 20000, 10).ravel(), minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - 16000).max() < 600


def test_gumbel_numbers() -> None:
    uniform = np.array([0, 1e-8, 1e-7, 0.5, math.exp(-1), 1 - 2**-24, 1], np.float32)
    expected = [-math.log(-math.log(1e-7))] * 3 + [-math.log(math.log(2)), 0.0] + [-math.log(1e-7)] * 2
    np.testing.assert_allclose(gumbel(uniform), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("timesteps", [1, 6, 200])
def test_constants(timesteps: int) -> None:
    k, tables = 1025, schedule(timesteps)
    keep, rest, hot, cold, edge, stay, pinned = constants(timesteps, k, 3).T
    alpha, so_far = np.exp(tables.log_alpha.astype(float)), np.exp(tables.log_cumprod_alpha.astype(float))
    spread, all_spread = (
        np.exp(t.astype(float)) for t in (tables.log_1_min_alpha, tables.log_1_min_cumprod_alpha)
    )
    np.testing.assert_allclose(np.exp(keep[1:]), so_far[:-1], rtol=1e-6)
    np.testing.assert_allclose(np.exp(rest[1:]), all_spread[:-1] / k, rtol=1e-6)
    assert (keep[0], rest[0], edge[0], stay[0]) == (0, -math.inf, CERTAIN, 1)
    np.testing.assert_allclose(np.exp(hot), alpha + spread / k, rtol=1e-6)
    np.testing.assert_allclose(np.exp(cold), 1e-7 * alpha + spread / k, rtol=1e-6)
    own, other = so_far + all_spread / k, 1e-7 * so_far + all_spread / k
    np.testing.assert_allclose(np.exp(edge[1:]), (own / other)[1:], rtol=1e-6)
    np.testing.assert_allclose(stay[1:], (own / (own + (k - 1) * other))[1:], rtol=1e-6)
    np.testing.assert_array_equal(pinned, np.arange(timesteps) > 3)
