"""Scaled dot-product attention, exact on every device: torch's kernel if it is reliable there, else blocks.

Blocks: queries and keys are cut, and a running maximum, sum and weighted value in float32 (float64 for
float64) join the key blocks. Milakov and Gimelshein, "Online normalizer calculation for softmax",
arXiv:1805.02867; Rabe and Staats, "Self-attention does not need O(n^2) memory", arXiv:2112.05682.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_ref import limits
from torch_ref.limits import independent
from torch_ref.limits.attention import last_contiguous
from tts_core.nn.attention import AttentionPolicy, AttentionSizes, block_sizes, lane_spans, spans
from tts_core.nn.packed import PackedMask

__all__ = ["AttentionPolicy", "scaled_dot_product_attention"]

DEFAULT = AttentionPolicy()
MIXED = torch.version.hip is None and "dtype" in torch.ops.aten.baddbmm.overloads()  # from torch 2.8
FUSED = (1, 2, 3)  # SDPBackend.FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | PackedMask | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    policy: AttentionPolicy | None = None,
) -> Tensor:
    """Compute softmax(query key^T scale + mask) value, with the contract of torch's function of this name.

    query (..., H, L, E), key (..., K, S, E), value (..., K, S, Ev); returns (..., H, L, Ev) in query's dtype.
    H is a multiple of K with enable_gqa; K and V are not repeated.
    scale: 1/sqrt(E) if None.
    attn_mask: boolean (True = keep) or added to the scores, broadcast to (..., H, L, S); or the parts that
    attend by themselves.
    is_causal: row i sees keys <= i, also if L differs from S. Rows without keys give 0.
    dropout_p: blocks draw other numbers than the whole call.
    Raises ValueError for attn_mask together with is_causal, and for shapes and dtypes that do not fit.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("attention: both attn_mask and is_causal are given; put causality into the mask")
    if isinstance(attn_mask, PackedMask):
        attend = partial(scaled_dot_product_attention, scale=scale, enable_gqa=enable_gqa, policy=policy)
        attended = attn_mask.attend(attend, query, key, value)
        return attended[0] if len(attended) == 1 else torch.cat(attended, dim=-2)
    policy = policy or DEFAULT
    if enable_gqa and query.shape[-2] == 1 and not is_causal and _shared_by_heads(query, key, attn_mask):
        # With one row per head, a group's heads become rows of its key head: no kernel repeats K/V; 1.5x
        # faster on a CPU.
        rows = query.reshape(*key.shape[:-2], -1, query.shape[-1])
        out = scaled_dot_product_attention(rows, key, value, attn_mask, dropout_p, scale=scale, policy=policy)
        return out.reshape(*query.shape[:-1], value.shape[-1])
    if independent.takes(query, attn_mask):
        masked = attn_mask is not None
        return independent.attend(query, key, value, scale, masked=masked, is_causal=is_causal)
    if policy.native:
        backend = limits.backend_of(query.device)
        if backend is not None and backend.device == "mps":
            query, attn_mask, scale = _plain(query, attn_mask, scale)
        call = (query, key, value, attn_mask, dropout_p, is_causal)
        if _trusted(call, scale, enable_gqa, backend, policy):
            return F.scaled_dot_product_attention(*call, scale=scale, enable_gqa=enable_gqa)
    return _blocks(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, policy)


def _shared_by_heads(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """Return True if batch dimensions agree and the mask is the same for every head."""
    same = query.shape[:-3] == key.shape[:-3] and query.shape[-3] % key.shape[-3] == 0
    return same and (mask is None or (mask.shape[-2] == 1 and (mask.dim() < 3 or mask.shape[-3] == 1)))


def _plain(
    query: Tensor, mask: Tensor | None, scale: float | None
) -> tuple[Tensor, Tensor | None, float | None]:
    """Rewrite a call to avoid faults of MPS: a mask in query's dtype, in float32 the default scale."""
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -math.inf)
    if scale is not None and query.dtype == torch.float32:
        query, scale = query * (scale * math.sqrt(query.shape[-1])), None
    return query, mask, scale


def _trusted(
    call: tuple[Tensor, Tensor, Tensor, Tensor | None, float, bool],
    scale: float | None,
    enable_gqa: bool,
    backend: limits.Backend | None,
    policy: AttentionPolicy,
) -> bool:
    """Return True if torch's kernel is exact here and keeps its scores within the budget."""
    query, key = call[:2]
    pairs = query.numel() // max(query.shape[-1], 1) * key.shape[-2]
    small = pairs * 4 <= (policy.budget_bytes or DEFAULT.budget_bytes or 0)
    plain = backend is None or (backend.device == "cuda" and last_contiguous(call[3], key.shape[-2]))
    if small and plain and pairs <= 2**32:
        return True  # CUDA has no other rule for so few scores: decoding skips the table
    if not limits.attention_trusted(*call, scale, enable_gqa):
        return False
    if small or (backend is not None and backend.device == "mps"):
        return small  # on MPS some shapes build the whole score matrix
    return torch.ops.aten._fused_sdp_choice(*call, scale=scale, enable_gqa=enable_gqa) in FUSED


def _blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    policy: AttentionPolicy,
) -> Tensor:
    if query.dim() == 2:  # (L, E): one head
        key, value = key.unsqueeze(0), value.unsqueeze(0)
        return _blocks(
            query.unsqueeze(0), key, value, mask, dropout_p, is_causal, scale, enable_gqa, policy
        ).squeeze(0)
    lead, group = _leading(query, key, value, enable_gqa)
    rows, keys = query.shape[-2], key.shape[-2]
    out = query.new_empty(*lead, group, rows, value.shape[-1])
    # Views of (..., K, rows, width), and of (..., K, G, rows, width or keys): the heads of a group share a
    # key head.
    query = _lift(query, len(lead) + 2).unflatten(-3, (-1, group))
    key, value = _lift(key, len(lead) + 2), _lift(value, len(lead) + 2)
    if mask is not None:
        mask = _aligned(mask, (*lead[:-1], lead[-1] * group, rows, keys))
        mask = mask.unflatten(-3, (-1, group) if mask.shape[-3] > 1 else (1, 1))
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    compute = torch.float64 if query.dtype == torch.float64 else torch.float32
    graph = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (query, key, value, mask)
    )
    # one copy for a mask's cast, two for dropout, three more for a backward pass
    copies = 1 + (mask is not None) + 2 * (dropout_p > 0) + 3 * graph
    widths = query.shape[-1], value.shape[-1]
    sizes = AttentionSizes(math.prod(lead), group, rows, keys, *widths, compute.itemsize, is_causal, copies)
    lanes, q_chunk, k_chunk = block_sizes(sizes, _budget(policy, query.device), policy=policy)

    for lane in lane_spans(lead, lanes):
        for span in spans(rows, q_chunk):
            block = (
                _cut(query, (*lane, slice(None), span)),
                _cut(key, lane),
                _cut(value, lane),
                None if mask is None else _cut(mask, (*lane, slice(None), span)),
            )
            first_row = span.start if is_causal else None
            if graph:  # recompute a block in the backward pass instead of keeping its scores
                result = checkpoint(
                    _attend, *block, first_row, dropout_p, scale, compute, k_chunk, use_reentrant=False
                )
            else:
                result = _attend(*block, first_row, dropout_p, scale, compute, k_chunk)
            out[(*lane, slice(None), span)] = result
    return out.flatten(-4, -3)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    first_row: int | None,
    dropout_p: float,
    scale: float,
    compute: torch.dtype,
    k_chunk: int,
) -> Tensor:
    """Attend from a block of rows to all keys.

    (..., K, G, r, E), (..., K, S, E), (..., K, S, Ev) → (..., K, G, r, Ev).
    first_row: the block's first global row if attention is causal.
    """
    lead = torch.broadcast_shapes(query.shape[:-3], key.shape[:-2], value.shape[:-2])
    group, rows, width = query.shape[-3:]
    keys = key.shape[-2] if first_row is None else min(key.shape[-2], first_row + rows)
    kind = query.device.type
    with torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext():
        query = query.expand(*lead, group, rows, width).reshape(-1, group * rows, width)  # (B K, G r, E)
        mixed = _mixed(query, key)
        query = query if mixed else query.to(compute) * scale
        top = query.new_full((*query.shape[:-1], 1), -math.inf, dtype=compute)
        total = torch.zeros_like(top)
        acc = query.new_zeros((*query.shape[:-1], value.shape[-1]), dtype=compute)
        for span in spans(keys, k_chunk):
            part = _lanes(key[..., span, :], lead).transpose(-2, -1)
            if mixed:  # `top` is ignored: beta is 0
                scores = torch.baddbmm(top, query, part, out_dtype=compute, beta=0, alpha=scale)
            else:
                scores = query @ part.to(compute)
            _forbid(scores.view(*lead, group, rows, -1), mask, first_row, span)
            # The result does not depend on the maximum, so no gradient flows through it.
            new_top = torch.maximum(top, scores.detach().amax(-1, keepdim=True))
            # only a mask can leave rows without keys so far
            shift = new_top if mask is None else new_top.masked_fill(new_top == -math.inf, 0.0)
            rescaled = torch.exp(top - shift)
            scores = scores.sub_(shift).exp_()
            total = total.mul_(rescaled).add_(scores.sum(-1, keepdim=True))
            if dropout_p:
                scores = F.dropout(scores, dropout_p)
            acc = acc.mul_(rescaled).baddbmm_(scores, _lanes(value[..., span, :], lead).to(compute))
            top = new_top
            del scores  # before computing the next block's
        out = acc / total.masked_fill(total == 0, 1.0)
        return out.view(*lead, group, rows, -1)


def _mixed(query: Tensor, key: Tensor) -> bool:
    """Return True if a matmul of half-precision inputs can return float32: products are exact in float32, so
    this equals casting first, but runs on tensor cores.
    """
    if not MIXED or not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad):
        return False
    return torch.cuda.get_device_capability(query.device) >= (8, 0)


def _lanes(x: Tensor, lead: Sequence[int]) -> Tensor:
    """(..., K, S, E) → (B K, S, E); a view, unless x is broadcast over batches."""
    return x.expand(*lead, *x.shape[-2:]).flatten(0, -3)


def _forbid(scores: Tensor, mask: Tensor | None, first_row: int | None, span: slice) -> None:
    """Apply mask and causality to the scores (..., K, G, r, k) of the keys in `span`, in place."""
    if mask is not None:
        part = mask if mask.shape[-1] == 1 else mask[..., span]
        if part.dtype == torch.bool:
            scores.masked_fill_(~part, -math.inf)
        else:
            scores.add_(part.to(scores.dtype))
    if first_row is not None and span.stop - 1 > first_row:
        row = torch.arange(first_row, first_row + scores.shape[-2], device=scores.device).unsqueeze(-1)
        scores.masked_fill_(torch.arange(span.start, span.stop, device=scores.device) > row, -math.inf)


def _leading(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[tuple[int, ...], int]:
    """Return the common leading dimensions (..., K) and the query heads per key head."""
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(f"attention: dtypes {query.dtype}, {key.dtype}, {value.dtype} differ; give one")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        raise ValueError(
            f"attention: shapes {shapes} do not match; query and key share E, key and value share S"
        )
    heads, key_heads = query.shape[-3], key.shape[-3]
    if not enable_gqa or heads == key_heads:
        return torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2]), 1
    if value.shape[-3] != key_heads or heads % key_heads:
        raise ValueError(f"attention: {heads} query heads for {key_heads} key heads; give a multiple")
    batch = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    return (*batch, key_heads), heads // key_heads


def _aligned(mask: Tensor, scores: Sequence[int]) -> Tensor:
    """Return a view of the mask with as many dimensions as the scores, each of size 1 or full."""
    if (
        mask.dim() < 2
        or mask.dim() > len(scores)
        or any(m not in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1], strict=False))
    ):
        raise ValueError(
            f"attention: mask {tuple(mask.shape)} does not broadcast to the scores {tuple(scores)}"
        )
    return _lift(mask, len(scores))


def _lift(x: Tensor, rank: int) -> Tensor:
    """Return a view of x with leading dimensions of size 1 up to `rank`."""
    return x[(None,) * (rank - x.dim())]


def _cut(x: Tensor, index: Sequence[slice]) -> Tensor:
    """Slice x; dimensions of size 1 stay, for broadcasting."""
    return x[tuple(span if size > 1 else slice(None) for span, size in zip(index, x.shape, strict=False))]


def _budget(policy: AttentionPolicy, device: torch.device) -> int:
    if policy.budget_bytes is not None:
        return policy.budget_bytes
    if device.type == "cuda":
        return max(torch.cuda.mem_get_info(device)[0] // 4, 1)
    if device.type == "mps":
        return max((torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()) // 4, 1)
    return DEFAULT.budget_bytes or 0
