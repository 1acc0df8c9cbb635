"""Shapes for which the attention kernel of mx.fast is right."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.kernels import source
from mlx_port.kernels.source import near

HALF = (mx.bfloat16, mx.float16)
LONG = 1024  # keys from which grouped queries have a trial: garbage on an M3 Max (ml-explore/mlx#4022)


def has_kernel(
    query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None, is_causal: bool
) -> bool:
    """Return True if mx.fast has a kernel without a score matrix for these shapes (MLX 0.32: fast.cpp)."""
    if mx.default_device().type != mx.DeviceType.gpu:
        return False
    heads, rows, width = query.shape[1:]
    groups = heads // key.shape[1]
    if groups > 1 and key.shape[-2] >= LONG and not source.passes(trial, query.dtype, groups, width):
        return False
    if mx.metal.is_available():
        if width != value.shape[-1] or rows > key.shape[-2]:
            return False
        if rows > 8:
            return width in (64, 72, 80, 96, 128)
        return width in (64, 96, 128, 256) and rows * groups <= 32
    if rows < 4 and mask is None and not is_causal and width in (64, 96, 128) and width == value.shape[-1]:
        return True
    widths = max(width, value.shape[-1])
    return query.dtype in HALF and rows > 3 and widths <= 128 and width % 8 == 0 and value.shape[-1] % 8 == 0


def try_long(heads: int, kv_heads: int, width: int, dtype: mx.Dtype) -> None:
    """Run the trial that long attention of these heads needs."""
    query, key = mx.zeros((1, heads, 1, width), dtype), mx.zeros((1, kv_heads, LONG, width), dtype)
    has_kernel(query, key, key, None, False)  # nothing is computed


def trial(dtype: mx.Dtype, groups: int, width: int) -> bool:
    """Compare mx.fast's attention of one row over LONG keys and more with its formula, in grouped queries."""
    keys = LONG + 40
    numbers = mx.sin(mx.arange(2 * keys * width) * 0.37).reshape(1, 2, keys, width)
    query = mx.cos(mx.arange(2 * groups * width) * 0.11).reshape(1, 2 * groups, 1, width)
    parts = [x.astype(dtype) for x in (query, numbers, numbers[:, :, ::-1])]
    found = mx.fast.scaled_dot_product_attention(*parts, scale=width**-0.5)
    wide = [x.astype(mx.float32) for x in parts]
    scores = wide[0].reshape(1, 2, groups, width) @ wide[1].swapaxes(-1, -2) * width**-0.5
    expected = (mx.softmax(scores, axis=-1) @ wide[2]).reshape(1, 2 * groups, 1, width)
    return near(found, expected)
