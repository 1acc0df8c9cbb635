"""The end of MetaVoice's step: ids from logits. Draws follow mlx_port.metavoice.sampling."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx

from mlx_port.metavoice.sampling import draw_ids
from mlx_port.steps.chain import chain
from tts_core.metavoice.sampling import FirstStageSampling


@lru_cache(maxsize=64)
def drawing(sampling: FirstStageSampling) -> Callable[[mx.array, mx.array], mx.array]:
    """Build `draw_ids` under one setting: of logits, and of uniform numbers."""

    @chain
    def ids(logits: mx.array, uniform: mx.array) -> mx.array:
        return draw_ids(logits, None if sampling.greedy else -mx.log(uniform), sampling)

    return ids
