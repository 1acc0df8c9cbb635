"""The end of MARS5's step: ids from logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx

from mlx_port.sampling import draw_rows, occurrences
from mlx_port.steps.chain import chain
from tts_core.mars5.inputs import allowed_ids
from tts_core.nn.sampling import Sampler


@lru_cache(maxsize=64)
def drawing(
    sampler: Sampler, vocabulary: int, *, lowest: int, end: int
) -> Callable[..., tuple[mx.array, mx.array]]:
    """Build the draw of ids; -1 for a text whose logits are not all finite.

    It takes logits (N, V), the ids whose repetition is penalized, penalties of the end and uniform numbers,
    (N, 1) each, and the table of settings. → ids (N,), and those that the next step reads.
    lowest, end: ids of CodecVocabulary.
    """
    allowed = mx.array(allowed_ids(vocabulary, lowest))

    @chain
    def ids(
        logits: mx.array, seen: mx.array, penalty: mx.array, uniform: mx.array, settings: mx.array
    ) -> tuple[mx.array, mx.array]:
        table, counts = sampler.named(settings, 2), occurrences(seen, vocabulary)
        inputs = {"allowed": allowed, "counts": counts, "penalty": penalty, "end": end}
        drawn = draw_rows([logits], table, uniform, sampler, **inputs)
        drawn = mx.where(mx.isfinite(logits).all(axis=-1), drawn, -1)
        return drawn, mx.maximum(drawn, 0)

    return ids
