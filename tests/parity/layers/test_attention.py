"""mlx_port's attention: the same cases and policies, MLX's own kernel included, and its memory."""

import itertools
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
from torch import Tensor

import mlx_port.layers.attention
from mlx_port.layers.attention import AttentionPolicy, scaled_dot_product_attention
from tests.tolerance import EPS, FACTOR
from tests.torch_ref.layers.attention_cases import CASES, TWO_ROWS, causal_fault, fault
from tts_core.nn.attention import AttentionSizes, block_sizes

attend: Callable[..., mx.array] = scaled_dot_product_attention
POLICIES = {
    "13 rows, 17 keys": AttentionPolicy(13, 17, native=False),
    "64 KiB": AttentionPolicy(budget_bytes=64 * 1024, native=False),
    "one block": AttentionPolicy(native=False),
    "native": AttentionPolicy(),
}


def to_mlx(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return x
    return (
        mx.array(x.float().numpy()).astype(mx.bfloat16) if x.dtype == torch.bfloat16 else mx.array(x.numpy())
    )


def to_torch(x: mx.array) -> Tensor:
    dtypes = {mx.float32: torch.float32, mx.float16: torch.float16, mx.bfloat16: torch.bfloat16}
    return torch.from_numpy(np.array(x.astype(mx.float32))).to(dtypes[x.dtype])


def ours(policy: AttentionPolicy) -> Any:
    def candidate(*tensors: Tensor, **options: Any) -> Tensor:
        moved = {key: to_mlx(x) for key, x in options.items()}
        return to_torch(attend(*map(to_mlx, tensors), **moved, policy=policy))

    return candidate


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", CASES)
def test_cases(name, policy):
    assert fault(ours(POLICIES[policy]), name) is None


@pytest.mark.parametrize("k_chunk", [1, 3, None])
@pytest.mark.parametrize("name", TWO_ROWS)
def test_a_block_of_two_rows_sees_no_future_key(name, k_chunk):
    rows, keys, q_chunk = TWO_ROWS[name]
    assert causal_fault(ours(AttentionPolicy(q_chunk, k_chunk, native=False)), rows, keys) is None


def test_causal_blocks_of_every_small_size():
    faults = {}
    for rows, keys, q_chunk, k_chunk in itertools.product((2, 3, 5), (1, 2, 4, 7), (1, 2, 3), (1, 2, 3)):
        found = causal_fault(ours(AttentionPolicy(q_chunk, k_chunk, native=False)), rows, keys)
        if found:
            faults[rows, keys, q_chunk, k_chunk] = found
    assert not faults


def test_additive_masks_in_float32_go_with_half_precision():
    x = [mx.random.normal((1, 2, 6, 64), key=mx.random.key(i)).astype(mx.float16) for i in range(3)]
    mask = mx.where(mx.arange(6) < 4, 0.0, -mx.inf)[None]
    got = attend(*x, mask)
    kept = attend(*x, mx.arange(6)[None] < 4)
    assert got.dtype == mx.float16
    unit = 2.0**-10 * np.abs(np.array(kept)).max()  # in the last place of float16: results are rounded once
    np.testing.assert_allclose(np.array(got), np.array(kept), rtol=0, atol=unit)


def test_rows_without_keys_are_zero_for_additive_masks_too():
    x = mx.ones((1, 1, 3, 4))
    mask = mx.zeros((3, 3))
    mask[1] = -mx.inf
    for policy in (AttentionPolicy(), AttentionPolicy(2, 2, native=False)):
        got = np.array(attend(x, x, x, mask, policy=policy))
        assert np.array_equal(got[0, 0], [[1] * 4, [0] * 4, [1] * 4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_mask": mx.zeros((4, 5)), "is_causal": True}, "both attn_mask and is_causal are given"),
        ({"dropout_p": 0.1}, "dropout_p is 0.1"),
        ({"attn_mask": mx.zeros((5,))}, "does not broadcast"),
        ({"attn_mask": mx.zeros((3, 5))}, "does not broadcast"),
    ],
)
def test_calls_that_cannot_work_are_named(change, message):
    x, y = mx.zeros((1, 2, 4, 8)), mx.zeros((1, 2, 5, 8))
    with pytest.raises(ValueError, match=message):
        attend(x, y, y, policy=AttentionPolicy(native=False), **change)


def test_heads_must_divide():
    x, y = mx.zeros((1, 3, 4, 8)), mx.zeros((1, 2, 4, 8))
    with pytest.raises(ValueError, match="give a multiple"):
        attend(x, y, y, enable_gqa=True, policy=AttentionPolicy(native=False))


@pytest.fixture
def in_blocks(monkeypatch):
    """Check if a call on zeros is cut into blocks, without computing them."""
    calls = []

    def blocks(query: mx.array, *others: Any) -> mx.array:
        calls[-1] = True
        return query

    monkeypatch.setattr(mlx_port.layers.attention, "_blocks", blocks)

    def attempt(*shapes: tuple[int, ...], policy: AttentionPolicy) -> bool:
        calls.append(False)
        attend(*(mx.zeros(shape) for shape in shapes), policy=policy)
        return calls[-1]

    return attempt


def test_the_native_path_counts_every_score_of_every_batch_and_head(in_blocks):
    """At 4 bytes per score. Values of another width: every kernel stores the scores then."""
    shapes, scores = ((2, 3, 5, 16), (2, 3, 7, 16), (2, 3, 7, 8)), 2 * 3 * 5 * 7 * 4
    assert not in_blocks(*shapes, policy=AttentionPolicy(budget_bytes=scores))
    assert in_blocks(*shapes, policy=AttentionPolicy(budget_bytes=scores - 1))


def test_the_native_path_without_a_budget_takes_256_mib_of_scores(in_blocks):
    rows = 8192
    for keys, cut in ((rows, False), (rows + 1, True)):
        shapes = (1, 1, rows, 16), (1, 1, keys, 16), (1, 1, keys, 8)
        for policy in (AttentionPolicy(budget_bytes=None), AttentionPolicy()):
            assert in_blocks(*shapes, policy=policy) == cut


# MLX gives cuBLAS up to 32 MiB of workspace, which count: all scores must take far more
CUDA = mx.default_device().type == mx.DeviceType.gpu and not mx.metal.is_available()
ROWS, WORKSPACE = (8192, 32 << 20) if CUDA else (1024, 0)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_blocks_stay_within_the_budget(options):
    rows, workspace = ROWS, WORKSPACE
    x = [mx.random.normal((1, 4, rows, 32), key=mx.random.key(i)) for i in range(3)]
    mx.eval(x)
    budget, output = 1 << 20, 4 * rows * 32 * 4  # all scores would take 16 MiB, on CUDA 1 GiB
    ahead = budget  # MLX allocates for queued operations before they run
    before = mx.get_active_memory()
    mx.clear_cache()
    mx.reset_peak_memory()
    policy = AttentionPolicy(budget_bytes=budget, native=False)
    mx.eval(attend(*x, **options, policy=policy))
    assert mx.get_peak_memory() - before <= 2 * output + budget + ahead + workspace


@pytest.mark.parametrize("mask", [None, "causal", mx.bool_, mx.float16], ids=str)
def test_a_block_takes_no_more_memory_than_is_counted(mask, monkeypatch):
    """Its scores, the masked scores, and the rest."""
    counted = []

    def sized(scores: AttentionSizes, *others: Any, **options: Any) -> tuple[int, int, int]:
        sizes = block_sizes(scores, *others, **options)
        counted.append(scores.block_bytes(*sizes))
        return sizes

    monkeypatch.setattr(mlx_port.layers.attention, "block_sizes", sized)
    x = [mx.random.normal((1, 1, ROWS, 4), key=mx.random.key(i)) for i in range(3)]
    bias = mx.ones((ROWS, ROWS)).astype(mask) if isinstance(mask, mx.Dtype) else None
    mx.eval(x, [] if bias is None else bias)
    before = mx.get_active_memory()
    mx.clear_cache()
    mx.reset_peak_memory()
    policy = AttentionPolicy(q_chunk=ROWS, budget_bytes=1 << 40, native=False)
    mx.eval(attend(*x, bias, is_causal=mask == "causal", policy=policy))
    assert mx.get_peak_memory() - before <= counted[0] + WORKSPACE


def test_gradients_and_compilation_go_through_the_blocks():
    x = [mx.random.normal((1, 2, 5, 4), key=mx.random.key(i)) for i in range(3)]

    def loss(query: mx.array, policy: AttentionPolicy) -> mx.array:
        return (attend(query, *x[1:], is_causal=True, policy=policy) ** 2).sum()

    blocks = AttentionPolicy(2, 2, native=False)
    whole = mx.grad(loss)(x[0], AttentionPolicy())
    rounding = 2 * FACTOR * EPS  # of the largest: two float32 runs of a few sums of at most five terms
    scale = np.abs(np.array(whole)).max()
    blocked = np.array(mx.grad(loss)(x[0], blocks))
    np.testing.assert_allclose(blocked, np.array(whole), rtol=0, atol=rounding * scale)
    compiled = mx.compile(lambda query: loss(query, blocks))
    np.testing.assert_allclose(compiled(x[0]).item(), loss(x[0], AttentionPolicy()).item(), rtol=rounding)
