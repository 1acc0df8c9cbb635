"""The schedule's tables: PyTorch's numbers without PyTorch."""

import numpy as np
import pytest

from tts_core.mars5.diffusion import MOST_TIMESTEPS, alphas, rounded_alphas, schedule

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


def test_tables_cannot_be_changed_for_others() -> None:
    with pytest.raises(ValueError, match="read-only"):
        schedule(6).log_alpha[0] = 0
