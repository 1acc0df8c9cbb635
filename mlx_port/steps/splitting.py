"""Queries, keys and values of single rows, out of a joined product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlx.core as mx

from mlx_port.kernels import norm_rotate as kernel
from mlx_port.kernels import source

Heads = tuple[mx.array, mx.array, mx.array]  # queries (R, H, 1, E), keys and values (R, K, 1, E)


class Stack(Protocol):
    """Sizes of a transformer's heads."""

    @property
    def num_attention_heads(self) -> int: ...

    @property
    def num_key_value_heads(self) -> int: ...

    @property
    def head_dim(self) -> int: ...


class Splitting:
    """Queries, keys and values of a joined product: queries and keys normalized, then rotated.

    gains: (E,) float32 of queries, and of keys.
    kind: of activations.
    """

    def __init__(self, stack: Stack, gains: Sequence[mx.array], eps: float, kind: mx.Dtype):
        self.heads, self.kv_heads, self.width = (
            stack.num_attention_heads,
            stack.num_key_value_heads,
            stack.head_dim,
        )
        self.kind, self.eps, self.ones = kind, eps, mx.ones(stack.head_dim)
        query, key = (gain[None] for gain in gains)
        self.gains = mx.concatenate([*[query] * self.heads, *[key] * self.kv_heads])
        mx.eval(self.ones, self.gains)

    def __call__(self, made: mx.array, spin: mx.array | None) -> Heads:
        """Split a product's rows. (R, (H + 2 K) E).  spin: from Spins; None without rotary positions."""
        made = made.astype(self.kind)
        if spin is not None and source.passes(kernel.trial, self.kind, spin.dtype):
            queries, fresh = kernel.norm_rotate(made, spin, self.gains, self.heads, self.eps)
            keys, values = mx.split(fresh.flatten(0, 1), 2)  # views; an index would copy
            return queries, keys, values
        parts = made.reshape(len(made), -1, self.width)
        both = self.heads + self.kv_heads
        unit = mx.fast.rms_norm(parts[:, :both].astype(mx.float32), self.ones, self.eps)
        normed = (unit * self.gains).astype(self.kind)
        if spin is not None:
            cos, sin = spin[:, :1], spin[:, 1:]
            first, second = mx.split(normed.astype(mx.float32), 2, axis=-1)
            halves = first * cos - second * sin, second * cos + first * sin
            normed = mx.concatenate([half.astype(self.kind) for half in halves], axis=-1)
        queries, keys = normed[:, : self.heads, None], normed[:, self.heads :, None]
        return queries, keys, parts[:, both:, None]
