"""Residual sum and norm of single rows, rounded where the layers round."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.layers.chain import chain
from mlx_port.layers.norm import RMSNorm


def add_norm(
    x: mx.array, added: mx.array, norm: RMSNorm, *, rest: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Return the sum and its norm. x: (R, D).  added: (R, D), or (B, D) for the first B of 2 B rows.

    rest: (D,), added to the other rows; None if there are none.
    """
    if rest is None:
        total, wide = _add(x, added)
    else:
        texts = len(added)
        parts = _add_first(x.reshape(2, texts, -1), added, rest, mx.array([[[True]], [[False]]]))
        total, wide = (part.reshape(x.shape) for part in parts)
    return total, mx.fast.rms_norm(wide, norm.weight, norm.eps).astype(x.dtype)


@chain
def _add(x: mx.array, added: mx.array) -> tuple[mx.array, mx.array]:
    total = x + added
    return total, total.astype(mx.float32)


@chain
def _add_first(x: mx.array, added: mx.array, rest: mx.array, first: mx.array) -> tuple[mx.array, mx.array]:
    total = x + mx.where(first, added, rest)
    return total, total.astype(mx.float32)
