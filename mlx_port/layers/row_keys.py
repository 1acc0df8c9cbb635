"""Keys and values of rows that are at positions of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np


@dataclass(frozen=True, eq=False)
class Seen:
    """Keys that rows see. most: of any row.  mask: (R, 1, 1, most), True at keys to see; None if all are."""

    most: int
    mask: mx.array | None


def seen_keys(counts: np.ndarray) -> Seen:
    """Let each row see its first `counts` keys. (R,)."""
    most = int(counts.max())
    if (counts == most).all():
        return Seen(most, None)
    seen: Any = np.arange(most) < counts[:, None]
    return Seen(most, mx.array(seen)[:, None, None])


def written(cache: mx.array, fresh: mx.array, places: np.ndarray) -> mx.array:
    """Put new keys at the rows' positions, in place. (..., R, K, rows, E), (..., R, K, 1, E), (R,)."""
    place = int(places[0])
    if (places == place).all():
        cache[..., place : place + 1, :] = fresh
        return cache
    rows = mx.array(places).reshape(*(1,) * (cache.ndim - 4), -1, 1, 1, 1)
    return mx.put_along_axis(cache, rows, fresh, axis=-2)
