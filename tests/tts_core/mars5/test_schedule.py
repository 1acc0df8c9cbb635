"""The schedule's tables: PyTorch's numbers without PyTorch."""

import numpy as np
import pytest

from tts_core.mars5.schedule import MOST_TIMESTEPS, alphas, rounded_alphas, schedule

EVERY = range(1, MOST_TIMESTEPS + 1)


def test_alphas_are_those_of_pytorch() -> None:
    pytest.importorskip("torch", reason="torch is not installed: it is the definition")
    from tests.tts_core.mars5.schedule_units import torch_alphas

    if not np.array_equal(torch_alphas(200), alphas(200)):
        pytest.skip("this PyTorch rounds cosines and square roots otherwise: no MKL, or another processor")
    assert [t for t in EVERY if not np.array_equal(torch_alphas(t), alphas(t))] == []


def test_corrections_are_roundings() -> None:
    """At most four units in the last place, and as often up as down."""
    off = [alphas(t).view(np.int32) - rounded_alphas(t).view(np.int32) for t in EVERY]
    assert max(int(np.abs(units).max()) for units in off) == 4
    assert abs(np.concatenate(off).mean()) < 0.2


@pytest.mark.parametrize("timesteps", [1, 2, 7, 50, 200, 1000])
def test_tables_are_the_formula(timesteps: int) -> None:
    """Compared in float64; float32's cosine near pi / 2 and 1 - alpha near 0 have few digits."""
    x = np.arange(timesteps + 1)
    survival = np.cos((x / timesteps + 0.008) / 1.008 * np.pi / 2) ** 2
    alpha = np.sqrt(np.clip(survival[1:] / survival[:-1], 0.001, 1))
    tables = schedule(timesteps)
    np.testing.assert_allclose(tables.log_alpha, np.log(alpha), rtol=3e-4, atol=4e-7)
    np.testing.assert_allclose(tables.log_cumprod_alpha, np.log(alpha).cumsum(), rtol=3e-4, atol=2e-5)
    sure = alpha < 0.999
    assert sure.any()
    np.testing.assert_allclose(tables.log_1_min_alpha[sure], np.log(1 - alpha)[sure], rtol=0, atol=1e-3)


def test_published_figures() -> None:
    tables = schedule(200)
    np.testing.assert_allclose(tables.log_alpha[197:], [-0.4054, -0.6931, -3.4539], atol=1e-4)
    np.testing.assert_allclose(tables.log_cumprod_alpha[199], -8.3085, atol=1e-4)
    np.testing.assert_allclose(tables.log_1_min_cumprod_alpha[0], -8.9674, atol=1e-4)


def test_tables_cannot_be_changed_for_others() -> None:
    with pytest.raises(ValueError, match="read-only"):
        schedule(6).log_alpha[0] = 0
