"""Scaled dot-product attention with torch's contract: mx.fast's kernel if it is exact, else blocks.

Blocks: queries and keys are cut, and a running maximum, sum and weighted value in float32 join the key
blocks. Milakov and Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867; Rabe and
Staats, "Self-attention does not need O(n^2) memory", arXiv:2112.05682.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import mlx.core as mx

from mlx_port.kernels.attention_support import HALF, has_kernel
from mlx_port.runtime.memory import backend_name
from tts_core.nn.attention import AttentionPolicy, AttentionSizes, block_sizes, lane_spans, spans
from tts_core.nn.packed import PackedMask

__all__ = ["AttentionPolicy", "scaled_dot_product_attention"]

DEFAULT = AttentionPolicy()


def scaled_dot_product_attention(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    attn_mask: mx.array | PackedMask | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    policy: AttentionPolicy | None = None,
) -> mx.array:
    """Compute softmax(query key^T scale + mask) value, with the contract of torch's function of this name.

    query (..., H, L, E), key (..., K, S, E), value (..., K, S, Ev); returns (..., H, L, Ev) in query's dtype.
    H is a multiple of K with enable_gqa; K and V are not repeated.
    scale: 1/sqrt(E) if None.
    attn_mask: boolean (True = keep) or added to the scores, broadcast to (..., H, L, S); or the parts that
    attend by themselves.
    is_causal: row i sees keys <= i, also if L differs from S (mx.fast's own rule is i + S - L). Rows without
    keys give 0.
    dropout_p: must be 0.
    Raises ValueError for attn_mask together with is_causal, and for shapes and dtypes that do not fit.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("attention: both attn_mask and is_causal are given; put causality into the mask")
    if dropout_p:
        raise ValueError(f"attention: dropout_p is {dropout_p}; the MLX side only does inference, give 0")
    if isinstance(attn_mask, PackedMask):
        attend = partial(scaled_dot_product_attention, scale=scale, enable_gqa=enable_gqa, policy=policy)
        attended = attn_mask.attend(attend, query, key, value)
        return attended[0] if len(attended) == 1 else mx.concatenate(attended, axis=-2)
    policy = policy or DEFAULT
    if policy.native and _trusted(query, key, value, attn_mask, is_causal, enable_gqa, policy):
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        rows, keys = query.shape[-2], key.shape[-2]
        if is_causal and rows == keys:
            return mx.fast.scaled_dot_product_attention(query, key, value, scale=factor, mask="causal")
        if is_causal:
            attn_mask = mx.arange(rows)[:, None] >= mx.arange(keys)
            return mx.fast.scaled_dot_product_attention(query, key, value, scale=factor, mask=attn_mask)
        if attn_mask is None:
            return mx.fast.scaled_dot_product_attention(query, key, value, scale=factor)
        boolean = attn_mask.dtype == mx.bool_
        attn_mask = attn_mask if boolean else attn_mask.astype(query.dtype)
        out = mx.fast.scaled_dot_product_attention(query, key, value, scale=factor, mask=attn_mask)
        # Without keys the kernels give the mean of V or NaN.
        visible = mx.any(attn_mask if boolean else attn_mask > -math.inf, axis=-1, keepdims=True)
        return mx.where(visible, out, mx.zeros((), out.dtype))
    return _blocks(query, key, value, attn_mask, is_causal, scale, enable_gqa, policy)


def _trusted(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    mask: mx.array | None,
    is_causal: bool,
    enable_gqa: bool,
    policy: AttentionPolicy,
) -> bool:
    """Return True if mx.fast takes these shapes, is exact for them, and keeps scores within the budget."""
    if query.ndim != 4 or key.ndim != 4 or query.shape[0] != key.shape[0] or query.dtype != key.dtype:
        return False
    if mask is not None and mask.ndim < 2:
        return False
    if query.shape[1] != key.shape[1] and not enable_gqa:
        return False
    if has_kernel(query, key, value, mask, is_causal):
        return True
    if query.dtype in HALF:
        return False  # unfused: scores are rounded to the input dtype (error 0.06 instead of 0.008)
    pairs = query.size // max(query.shape[-1], 1) * key.shape[-2]
    return pairs * 4 <= (policy.budget_bytes or DEFAULT.budget_bytes or 0)


def _blocks(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    mask: mx.array | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    policy: AttentionPolicy,
) -> mx.array:
    if query.ndim == 2:  # (L, E): one head
        return _blocks(
            query[None], key[None], value[None], mask, is_causal, scale, enable_gqa, policy
        ).squeeze(0)
    lead, group = _leading(query, key, value, enable_gqa)
    rows, keys = query.shape[-2], key.shape[-2]
    # (..., K, rows, width), and (..., K, G, rows, width or keys): the heads of a group share a key head.
    query = mx.unflatten(_lift(query, len(lead) + 2), -3, (-1, group))
    key, value = _lift(key, len(lead) + 2), _lift(value, len(lead) + 2)
    if mask is not None:
        mask = _aligned(mask, (*lead[:-1], lead[-1] * group, rows, keys))
        mask = mx.unflatten(mask, -3, (-1, group) if mask.shape[-3] > 1 else (1, 1))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    widths = query.shape[-1], value.shape[-1]
    sizes = AttentionSizes(math.prod(lead), group, rows, keys, *widths, 4, is_causal)
    lanes, q_chunk, k_chunk = block_sizes(sizes, _budget(policy), policy=policy)

    out = mx.zeros((*lead, group, rows, value.shape[-1]), query.dtype)
    result = out
    for lane in lane_spans(lead, lanes):
        for span in spans(rows, q_chunk):
            index = (*lane, slice(None), span)
            # Without a forced order the graph would run blocks in parallel and keep all their scores.
            part = mx.depends([_cut(query, index)], [result])[0]
            bias = None if mask is None else _cut(mask, index)
            first_row = span.start if is_causal else None
            result = _attend(part, _cut(key, lane), _cut(value, lane), bias, first_row, scale, k_chunk)
            result = result.astype(out.dtype)
            out[index] = result
    return mx.flatten(out, -4, -3)


def _attend(
    query: mx.array,
    key: mx.array,
    value: mx.array,
    mask: mx.array | None,
    first_row: int | None,
    scale: float,
    k_chunk: int,
) -> mx.array:
    """Attend from a block of rows to all keys.

    (..., K, G, r, E), (..., K, S, E), (..., K, S, Ev) → (..., K, G, r, Ev).
    first_row: the block's first global row if attention is causal.
    """
    group, rows = query.shape[-3:-1]
    keys = key.shape[-2] if first_row is None else min(key.shape[-2], first_row + rows)
    query = mx.flatten(query.astype(mx.float32) * scale, -3, -2)  # (..., K, G r, E)
    top = mx.full((*query.shape[:-1], 1), -math.inf)
    total = mx.zeros_like(top)
    acc = mx.zeros((*query.shape[:-1], value.shape[-1]))
    for span in spans(keys, k_chunk):
        part = mx.depends([key[..., span, :]], [acc])[0]
        scores = query @ part.astype(mx.float32).swapaxes(-2, -1)
        grid = mx.unflatten(scores, -2, (group, rows))
        if mask is not None:
            part = mask if mask.shape[-1] == 1 else mask[..., span]
            grid = (
                mx.where(part, grid, -math.inf) if part.dtype == mx.bool_ else grid + part.astype(mx.float32)
            )
        if first_row is not None and span.stop - 1 > first_row:
            row = mx.arange(first_row, first_row + rows)[:, None]
            grid = mx.where(mx.arange(span.start, span.stop) > row, -math.inf, grid)
        scores = mx.flatten(grid, -3, -2)
        # The result does not depend on the maximum, so no gradient flows through it.
        new_top = mx.maximum(top, mx.stop_gradient(scores.max(-1, keepdims=True)))
        shift = mx.where(new_top == -math.inf, 0.0, new_top)  # rows without keys so far
        rescaled = mx.exp(top - shift)
        scores = mx.exp(scores - shift)
        total = total * rescaled + scores.sum(-1, keepdims=True)
        acc = acc * rescaled + scores @ value[..., span, :].astype(mx.float32)
        top = new_top
    out = acc / mx.where(total == 0, 1.0, total)
    return mx.unflatten(out, -2, (group, rows))


def _leading(
    query: mx.array, key: mx.array, value: mx.array, enable_gqa: bool
) -> tuple[tuple[int, ...], int]:
    """Return the common leading dimensions (..., K) and the query heads per key head."""
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(f"attention: dtypes {query.dtype}, {key.dtype}, {value.dtype} differ; give one")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = f"{query.shape}, {key.shape}, {value.shape}"
        raise ValueError(
            f"attention: shapes {shapes} do not match; query and key share E, key and value share S"
        )
    heads, key_heads = query.shape[-3], key.shape[-3]
    if not enable_gqa or heads == key_heads:
        return mx.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2]), 1
    if value.shape[-3] != key_heads or heads % key_heads:
        raise ValueError(f"attention: {heads} query heads for {key_heads} key heads; give a multiple")
    batch = mx.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    return (*batch, key_heads), heads // key_heads


def _aligned(mask: mx.array, scores: Sequence[int]) -> mx.array:
    """Return the mask with as many dimensions as the scores, each of size 1 or full."""
    if (
        mask.ndim < 2
        or mask.ndim > len(scores)
        or any(m not in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1], strict=False))
    ):
        raise ValueError(f"attention: mask {mask.shape} does not broadcast to the scores {tuple(scores)}")
    return _lift(mask, len(scores))


def _lift(x: mx.array, rank: int) -> mx.array:
    """Add leading dimensions of size 1 to x up to `rank`."""
    return x.reshape(*(1,) * (rank - x.ndim), *x.shape)


def _cut(x: mx.array, index: Sequence[slice]) -> mx.array:
    """Slice x; dimensions of size 1 stay, for broadcasting."""
    return x[tuple(span if size > 1 else slice(None) for span, size in zip(index, x.shape, strict=False))]


def _budget(policy: AttentionPolicy) -> int:
    if policy.budget_bytes is not None:
        return policy.budget_bytes
    if backend_name() == "mlx-metal":
        limit = int(mx.device_info()["max_recommended_working_set_size"])
        return max((limit - mx.get_active_memory()) // 4, 1)
    return DEFAULT.budget_bytes or 0
