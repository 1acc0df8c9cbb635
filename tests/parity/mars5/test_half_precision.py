"""MARS5 in half precision: MLX's rounding is as large as PyTorch's; calls of its attention."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port.mars5.encoder as encoder
import torch_ref.mars5.encoder
from tests.sides import ORACLE, PORT, YARDSTICK, Side
from tests.tiny.mars5_ar import deep_prompt, reference
from tests.tiny.networks import Weights, ar_config, tiny
from tests.tolerance import EPS, FACTOR, FLOOR, error
from tts_core.mars5.config import CodecLMConfig, is_norm

pytestmark = pytest.mark.rest

CONFIG = ar_config(hidden_size=192, intermediate_size=256)  # heads as wide as the published ones
CODES = reference(30, CONFIG)
TOKENS = deep_prompt(CODES).tokens[None]
ROWS = 12  # read one by one
WEIGHTS = tiny(CONFIG, seed=4)


def rounded(dtype: str) -> Weights[CodecLMConfig]:
    """The values that a checkpoint in half precision holds."""
    kind = getattr(torch, dtype)
    halves = {
        name: tensor if is_norm(name) else torch.from_numpy(tensor).to(kind).float().numpy()
        for name, tensor in WEIGHTS.tensors.items()
    }
    return Weights(CONFIG, halves)


def logits(side: Side, network: Any) -> np.ndarray:
    """After all of the prompt but its last rows, and after each of those. → (ROWS + 1, V)."""
    first, array = TOKENS.shape[1] - ROWS, side.array
    rotary, cache = network.positions(TOKENS.shape[1] + 1), network.new_cache(TOKENS.shape[1] + 1)
    rows = network.rows(network.speaker(array(CODES.T[None])), array(TOKENS[:, :first]))
    made = [side.numpy(network.next_logits(rows, rotary(0, first + 1), cache))]
    for place in range(first, TOKENS.shape[1]):
        row = network.embed(array(TOKENS[:, place : place + 1]))
        made.append(side.numpy(network.next_logits(row, rotary(place + 1, 1), cache)))
    return np.concatenate(made)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_logits(dtype: str) -> None:
    """The largest error as in float32; the mean one at most double, since there are many logits."""
    weights = rounded(dtype)
    truth = logits(ORACLE, ORACLE.network("mars5", weights))
    yardstick, candidate = (logits(s, s.network("mars5", weights, dtype)) for s in (YARDSTICK, PORT))
    assert error(yardstick, truth) > 10 * EPS * np.abs(truth).max()
    assert error(candidate, truth) <= FACTOR * error(yardstick, truth) + FLOOR * EPS * np.abs(truth).max()
    assert np.square(candidate - truth).mean() <= 4 * np.square(yardstick - truth).mean()


def test_one_row_of_queries_for_all_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row of queries has its own memory: kernels write their output in the layout of the queries."""
    attention, kernel, given = encoder.MultiheadAttention(64, 4), encoder.scaled_dot_product_attention, []
    random = np.random.default_rng(0)
    attention.in_proj.weight = mx.array(random.normal(0, 0.125, (192, 64)).astype(np.float32))
    attention.in_proj.bias = mx.array(random.normal(0, 0.125, 192).astype(np.float32))

    def watched(queries: mx.array, *others: Any) -> mx.array:
        given.append(queries)
        return kernel(queries, *others)

    monkeypatch.setattr(encoder, "scaled_dot_product_attention", watched)
    x, source = (
        mx.array(random.normal(0, 1, shape).astype(np.float32)) for shape in ((1, 5, 64), (2, 7, 64))
    )
    both = attention(x, source)
    single = mx.concatenate([attention(x, source[row : row + 1]) for row in range(2)])
    rounding = 2 * FACTOR * EPS * np.abs(np.array(single)).max()  # of two float32 runs of sums of 64
    np.testing.assert_allclose(np.array(both), np.array(single), rtol=0, atol=rounding)
    strides = memoryview(given[0]).strides
    assert strides is not None
    assert min(strides) == strides[3] == 4
    assert len(set(strides)) == 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_cross_attention(dtype: str) -> None:
    """In half precision, with a width for which every GPU has a kernel."""
    ours, theirs = encoder.MultiheadAttention(256, 4), torch_ref.mars5.encoder.MultiheadAttention(256, 4)
    generator = torch.Generator().manual_seed(1)
    state = {
        name: (torch.randn(x.shape, generator=generator) / 16).to(getattr(torch, dtype))
        for name, x in theirs.state_dict().items()
    }
    x, source = (torch.randn(shape, generator=generator) for shape in ((1, 40, 256), (2, 24, 256)))
    mask = torch.arange(24) < torch.tensor([[24], [13]])[..., None, None]

    def run(kind: torch.dtype) -> np.ndarray:
        network = theirs.to(kind)
        network.load_state_dict({name: value.to(kind) for name, value in state.items()})
        with torch.inference_mode():
            given = (
                part.to(torch.float64 if kind == torch.float64 else torch.float32) for part in (x, source)
            )
            return network(*given, mask).double().numpy()

    arrays = [(name, mx.array(value.float().numpy())) for name, value in state.items()]
    ours.load_weights([(name, value.astype(getattr(mx, dtype))) for name, value in arrays])
    made = ours(mx.array(x.numpy()), mx.array(source.numpy()), mx.array(mask.numpy()))
    truth = run(torch.float64)
    allowed = FACTOR * error(run(getattr(torch, dtype)), truth) + FLOOR * EPS * np.abs(truth).max()
    assert error(np.array(made.astype(mx.float32)), truth) <= allowed
