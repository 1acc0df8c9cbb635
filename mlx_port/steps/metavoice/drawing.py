"""The end of MetaVoice's step: ids from logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx

from mlx_port.sampling import draw_rows
from mlx_port.steps.chain import chain
from tts_core.nn.sampling import Sampler


@lru_cache(maxsize=64)
def drawing(sampler: Sampler) -> Callable[[mx.array, mx.array, mx.array, mx.array], mx.array]:
    """Build the draw of ids; -1 for a text whose logits are not all finite.

    It takes logits (G, B, V), the table of settings, how many of the G rows each text has (B, 1), and uniform
    numbers (B, V), and returns (B,) int32.
    """

    @chain
    def ids(logits: mx.array, settings: mx.array, rows: mx.array, uniform: mx.array) -> mx.array:
        first, *others = (item.squeeze(0) for item in mx.split(logits, len(logits)))
        # in place of rows that a text does not have
        own = [first, *(mx.where(rows > copy, other, first) for copy, other in enumerate(others, 1))]
        drawn = draw_rows(own, sampler.named(settings, 2), uniform, sampler)
        bad = sum((item - item for item in own[1:]), first - first)  # NaN where logits are not finite
        return mx.where(mx.isfinite(bad).all(axis=-1), drawn, -1)

    return ids
