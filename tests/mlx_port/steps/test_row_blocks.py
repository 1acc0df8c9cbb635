"""Products and attention of few rows on a CPU: a row's numbers do not depend on the other rows."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlx_port.steps import row_blocks, rows
from mlx_port.steps.row_keys import attend_row, attend_seen, seen_keys
from tests.tolerance import assert_within
from tts_core.nn.row_calls import FIXED, Calls

# the embedded voice's, and odd ones
SHAPES = ((256, 256), (384, 256), (896, 256), (256, 448), (2080, 256), (67, 45), (5, 300))
RANDOM = np.random.default_rng(1)

pytestmark = pytest.mark.skipif(
    mx.default_device().type == mx.DeviceType.gpu, reason="the path of CPUs; arrays are on a GPU here"
)


def linear(out: int, width: int, *, bias: bool = False) -> nn.Linear:
    layer = nn.Linear(width, out, bias=bias)
    layer.weight = mx.array(RANDOM.normal(0, 0.1, (out, width)).astype(np.float32))
    return layer


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_are_those_alone_and_those_of_float32(shape: tuple[int, int], bias: bool) -> None:
    layer = linear(*shape, bias=bias)
    apply, x = rows.independent(layer), RANDOM.normal(size=(33, shape[1])).astype(np.float32)
    alone = np.concatenate([np.array(apply(mx.array(row[None]))) for row in x])
    weight, added = np.array(layer.weight, np.float64), np.array(layer["bias"]) if bias else 0
    truth = x.astype(np.float64) @ weight.T + added
    assert_within(alone, x @ weight.T.astype(np.float32) + added, truth, "row blocks")
    for count in range(1, 34):
        np.testing.assert_array_equal(np.array(apply(mx.array(x[:count]))), alone[:count])
        np.testing.assert_array_equal(np.array(apply(mx.array(x[33 - count :]))), alone[33 - count :])


def test_large_weights_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = linear(24, 16), mx.array(RANDOM.normal(size=(5, 16)).astype(np.float32))
    small = np.array(rows.independent(layer)(x))
    monkeypatch.setattr(row_blocks, "SMALL", 0)
    monkeypatch.setattr(mx, "contiguous", lambda weight: pytest.fail("a copy"))
    np.testing.assert_allclose(np.array(rows.independent(layer)(x)), small, rtol=1e-5, atol=1e-6)


def test_a_blas_whose_rows_depend_on_each_other_gets_a_row_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_blocks, "first_independent", lambda products, choices: None)
    row_blocks.calls_of.cache_clear()
    assert row_blocks.calls_of(3, 2) == FIXED[-1] == Calls(1, 1)
    row_blocks.calls_of.cache_clear()


def test_other_layers_and_forced_paths_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "in_blocks", lambda layer: pytest.fail("blocks"))
    half = linear(4, 8)
    half.weight = half.weight.astype(mx.bfloat16)
    rows.independent(half)
    rows.independent(nn.QuantizedLinear.from_linear(linear(8, 64)))
    monkeypatch.setenv("MLX_PORT_ROWS", "mlx")
    rows.independent(linear(4, 8))


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("texts", [1, 2, 5, 16])
def test_texts_attend_as_they_do_alone(texts: int, copies: int) -> None:
    """Bit for bit, whatever the others' lengths and keys past their own; and as the masked form does."""
    heads, kept, width, most = 4, 2, 16, 90
    counts = RANDOM.integers(1, most, texts)
    counts[-1] = counts[0]
    queries = RANDOM.normal(size=(copies, texts, heads, 1, width)).astype(np.float32)
    keys, values = (RANDOM.normal(size=(copies, texts, kept, most, width)).astype(np.float32) for _ in "kv")

    def attended(chosen: list[int], form) -> np.ndarray:
        parts = [mx.array(one[:, chosen]).flatten(0, 1) for one in (queries, keys, values)]
        seen = seen_keys(np.tile(counts[chosen], copies), texts=len(chosen))
        return np.array(form(*parts, seen)).reshape(copies, len(chosen), heads, width)

    def masked(queries, keys, values, seen) -> mx.array:
        return attend_row(queries, keys[:, :, : seen.most], values[:, :, : seen.most], seen.mask, 0.3)

    def seen_only(queries, keys, values, seen) -> mx.array:
        return attend_seen(queries, keys, values, seen, 0.3)

    shared = attended(list(range(texts)), seen_only)
    np.testing.assert_allclose(shared, attended(list(range(texts)), masked), rtol=1e-4, atol=1e-5)
    for one in range(texts):
        alone = attended([one], seen_only)
        np.testing.assert_array_equal(shared[:, one], alone[:, 0])
