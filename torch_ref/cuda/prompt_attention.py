"""Attention of prompts that one pass reads; a Triton kernel puts their keys and values into memory."""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

from torch import Tensor

from torch_ref.cuda.attention import Pairing, pairs_of, rotated
from torch_ref.cuda.triton import jit, pdl, tl, triton
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.rope import Rotation

HEADS = 8  # of a position that one program turns


def attend_prompts(
    projected: Tensor,
    spots: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float,
    rotation: Rotation | None = None,
    pairing: Pairing = "halves",
    gains: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Attend from each position of B prompts to itself and the earlier ones, and keep keys and values.

    projected: (B·T, (H + 2K)·E): queries, keys, values.
    spots: (B, 2) int64: each prompt's row in memory, and its positions. Those after them fill up the T: they
    are computed, and not kept.
    keys, values: (R, K, capacity, E); no prompt has more than `capacity` positions.
    rotation: tables of all positions, which begin at 0.
    gains: (2, E) float32, of RMS norms of queries and keys before the rotation. → (B·T, H·E).
    """
    kv_heads, width = keys.shape[1], keys.shape[3]
    both = projected.shape[1] // width - kv_heads  # queries and keys
    made = store_prompts(
        projected, spots, keys, values, rotation=rotation, pairing=pairing, gains=gains, eps=eps
    )
    rotated_heads, heads = (x.view(len(spots), -1, x.shape[1] // width, width) for x in (made, projected))
    queries, own = rotated_heads.transpose(1, 2).split((both - kv_heads, kv_heads), dim=1)
    read = heads[:, :, both:].transpose(1, 2)
    attended = scaled_dot_product_attention(
        queries, own, read, scale=scale, is_causal=True, enable_gqa=both > 2 * kv_heads
    )
    return attended.transpose(1, 2).flatten(2).flatten(0, 1)


def store_prompts(
    projected: Tensor,
    spots: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rotation: Rotation | None,
    pairing: Pairing = "halves",
    gains: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Keep keys and values of prompts; arguments as of `attend_prompts`, H may be 0.

    Returns normed and turned queries and keys, (B·T, (H + K)·E).
    """
    _, kv_heads, capacity, width = keys.shape
    (rows, whole), texts = projected.shape, len(spots)
    both = whole // width - kv_heads
    made = projected.new_empty(rows, both * width)
    cos, sin = (projected, projected) if rotation is None else rotation
    _store[rows, triton.cdiv(both + kv_heads, HEADS)](
        projected, made, cos, sin, cos if gains is None else gains, eps, spots, keys, values,
        rows // texts, capacity, both - kv_heads, kv_heads,
        NORMED=gains is not None, PAIRS=pairs_of(rotation, pairing), HEADS=HEADS, WIDTH=width,
        num_warps=4, **pdl(projected.device),
    )  # fmt: skip
    return made


@jit
def _store(
    projected, made, cos, sin, gains, eps, spots, keys, values, length, capacity, heads, kv_heads,
    NORMED: tl.constexpr, PAIRS: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Norm and turn some heads of a position, and keep those of keys and values."""
    row, col = tl.program_id(0), tl.arange(0, WIDTH)[None, :]
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    text, at, both = row // length, row % length, heads + kv_heads
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    index, count = tl.load(spots + 2 * text), tl.load(spots + 2 * text + 1).to(tl.int32)
    angle = tl.maximum(tl.minimum(at, count - 1), 0)  # tables may end with the prompt
    mine = projected + row.to(tl.int64) * (both + kv_heads) * WIDTH + head * WIDTH
    gain = gains + tl.where(head < heads, 0, WIDTH)
    y = rotated(mine, gain, eps, cos, sin, angle, col, head < both, NORMED, PAIRS, WIDTH)
    tl.store(made + row.to(tl.int64) * both * WIDTH + head * WIDTH + col, y, mask=head < both)
    is_value = (head >= both) & (head < both + kv_heads)
    value = tl.load(mine + col, mask=is_value, other=0.0)
    shared = tl.maximum(head - heads, 0) % kv_heads
    cell = ((index * kv_heads + shared) * capacity + at) * WIDTH + col
    tl.store(keys + cell, y, mask=(at < count) & (head >= heads) & (head < both))
    tl.store(values + cell, value, mask=(at < count) & is_value)
