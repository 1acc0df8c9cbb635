"""Residual sum and norm of single rows, rounded where the layers round."""

from __future__ import annotations

from typing import Protocol

import mlx.core as mx

from mlx_port.kernels import add_norm as kernel
from mlx_port.kernels import source


class Norm(Protocol):
    """An RMS norm; the dtype of its result depends on that of its input, or is the weight's."""

    weight: mx.array
    eps: float

    def __call__(self, x: mx.array) -> mx.array:
        """(..., D) → same."""
        ...


def add_norm(
    x: mx.array, added: mx.array, norm: Norm, dtype: mx.Dtype, *, rest: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Return the sum and its norm.

    x: (R, D).
    added: (R, D), or (B, D) for the first B rows.
    rest: (D,), added to the other rows; None if there are none.
    dtype: of the norm.
    """
    if source.passes(kernel.trial, x.dtype, added.dtype, norm.weight.dtype, dtype):
        return kernel.add_norm(x, added, rest, norm.weight, norm.eps, dtype)
    if rest is not None:
        added = mx.concatenate([added, mx.broadcast_to(rest, (len(x) - len(added), len(rest)))])
    total = x + added
    return total, norm(total)
