"""Attention of single rows, each at its own position over the keys that it sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.kernels.attention_support import has_kernel
from mlx_port.kernels.source import on_gpu
from mlx_port.layers.attention import scaled_dot_product_attention
from mlx_port.layers.row_cache import RowCache, RowPositions, relaid
from tts_core.nn.row_calls import Runs, alike


@dataclass(frozen=True, eq=False)
class Seen:
    """Keys that rows see.

    most: of any row.
    mask: (R, 1, 1, most), True at keys to see; None if all are.
    runs: of the texts; the rows after those of the texts are in the same order.
    """

    most: int
    mask: mx.array | None
    runs: Runs


def seen_keys(counts: np.ndarray, *, texts: int | None = None) -> Seen:
    """Let each row see its first `counts` keys, (R,), which repeat after the first `texts` rows."""
    most, runs = int(counts.max()), alike(counts[:texts].tolist())
    if len(runs) == 1:
        return Seen(most, None, runs)
    seen: Any = np.arange(most) < counts[:, None]
    return Seen(most, mx.array(seen)[:, None, None], runs)


def attend_row(
    query: mx.array, key: mx.array, value: mx.array, mask: mx.array | None, scale: float
) -> mx.array:
    """Attend from one row of each batch entry, with grouped heads, to at least one key each.

    (B, H, 1, E), (B, K, S, E) twice → (B, H, 1, E).  mask: (B, 1, 1, S), True at keys to see; None sees all.
    """
    if has_kernel(query, key, value, mask, False):
        return mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)
    return scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=True)


def attend_seen(queries: mx.array, keys: mx.array, values: mx.array, seen: Seen, scale: float) -> mx.array:
    """Attend from one row of each text, with grouped heads, to the keys that it sees.

    (R, H, 1, E), (R, K, rows, E) twice → (R, H, 1, E). In float32 on a CPU unequal texts attend by
    themselves, without padding, so that none's numbers depend on the others' lengths.
    """
    kind, queries = queries.dtype, queries.astype(keys.dtype)
    if on_gpu() or kind != mx.float32:
        keys, values = keys[:, :, : seen.most], values[:, :, : seen.most]
        return attend_row(queries, keys, values, seen.mask, scale).astype(kind)
    texts, kv_heads = seen.runs[-1][1], keys.shape[1]
    scaled = scale * queries.reshape(len(queries), kv_heads, -1, queries.shape[-1])  # (R, K, H/K, E)
    if len(seen.runs) == 1:
        return _attend(scaled, keys[:, :, : seen.most], values[:, :, : seen.most]).reshape(queries.shape)
    scaled, keys, values = (mx.unflatten(array, 0, (-1, texts)) for array in (scaled, keys, values))
    parts = [
        _attend(scaled[:, first:last], keys[:, first:last, :, :count], values[:, first:last, :, :count])
        for first, last, count in seen.runs
    ]
    return mx.concatenate(parts, axis=1).reshape(queries.shape)


def attend_cached(
    queries: mx.array, keys: mx.array, values: mx.array, at: RowPositions, scale: float
) -> mx.array:
    """Attend as `attend_seen` to what a RowCache has at these positions."""
    if on_gpu() or queries.dtype != mx.float32:
        return attend_row(queries.astype(keys.dtype), keys, values, at.mask, scale).astype(queries.dtype)
    counts = np.minimum(np.array(at.positions) + 1, at.capacity) if at.all_at is None else [at.seen]
    return attend_seen(queries, keys, values, seen_keys(np.broadcast_to(counts, len(queries))), scale)


def _attend(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
    """(..., G, E), (..., S, E) twice → (..., G, E)."""
    return mx.softmax(queries @ keys.swapaxes(-2, -1), axis=-1, precise=True) @ values


def written(cache: mx.array, fresh: mx.array, positions: np.ndarray) -> mx.array:
    """Put new keys at the rows' positions, in place. (..., R, K, rows, E), (..., R, K, 1, E), (R,)."""
    position = int(positions[0])
    if (positions == position).all():
        cache[..., position : position + 1, :] = fresh
        return cache
    rows = mx.array(positions).reshape(*(1,) * (cache.ndim - 4), -1, 1, 1, 1)
    return mx.put_along_axis(cache, rows, fresh.astype(cache.dtype), axis=-2)


class SharedCache(RowCache):
    """Keys and values of a layer, which one launch writes. both: (2, R, K, rows, E)."""

    def __init__(self, keys: mx.array, values: mx.array, at: RowPositions):
        self.both, self.at = mx.stack([keys, values]), at

    @property
    def keys(self) -> mx.array:
        """(R, K, rows, E)."""
        return self.both[:1].squeeze(0)  # both[0] would copy the whole cache

    @property
    def values(self) -> mx.array:
        """(R, K, rows, E)."""
        return self.both[1:].squeeze(0)

    def fill(self, row: int, keys: mx.array, values: mx.array) -> None:
        self.both[:, row, :, : keys.shape[1]] = mx.stack([keys, values])

    def move(self, row: int, before: int) -> None:
        self.both[:, row] = self.both[:, before]

    def relay(self, before: int, copies: int, rows: int, length: int) -> None:
        self.both = relaid(self.both, before, copies, rows, length)
