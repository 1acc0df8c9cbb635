"""Casts against torch's."""

import numpy as np
import pytest

from converters.files.dtypes import narrow, widen

torch = pytest.importorskip("torch", reason="torch is the oracle of the casts")


def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    ties = (np.arange(2000, dtype=np.uint32) << 16) + np.uint32(0x3F808000)
    edges = np.array([0, -0.0, 1, 65504, 65520, 1e-8, 3.4e38, -3.4e38, 1e-45, np.inf, -np.inf], np.float32)
    return np.concatenate([bits.view(np.float32), ties.view(np.float32), edges])


def test_bfloat16_rounds_to_nearest_even_as_torch():
    given = values()
    expected = torch.tensor(given).bfloat16().float().numpy()
    np.testing.assert_array_equal(widen(narrow(given, "BF16"), "BF16"), expected)


def test_float16_as_torch():
    given = values()
    np.testing.assert_array_equal(narrow(given, "F16"), torch.tensor(given).half().numpy())


@pytest.mark.parametrize("code", ["F16", "BF16"])
def test_widen_then_narrow_is_exact(code):
    bits = np.arange(2**16, dtype=np.uint16)
    stored = bits.view(np.float16) if code == "F16" else bits
    again = narrow(widen(stored, code), code)
    finite = np.isfinite(widen(stored, code))
    np.testing.assert_array_equal(again.view(np.uint16)[finite], bits[finite])
    assert not np.isfinite(widen(again, code)[~finite]).any()


def test_others_are_left_alone():
    codes = np.arange(4, dtype=np.uint32)
    assert widen(codes, "U32") is codes
    assert widen(np.ones(2), "F64").dtype == np.float32
