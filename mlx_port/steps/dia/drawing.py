"""The end of Dia's step: ids from logits, and the grid's rule on the device.

Draws follow mlx_port.dia.sampling, rows tts_core.dia.grid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx

from mlx_port.dia.sampling import candidates_0626, candidates_v01, draw
from mlx_port.guard import marked
from mlx_port.steps.chain import chain
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import FREE
from tts_core.dia.inputs import LIMIT, NEVER, SPEECH
from tts_core.dia.sampling import DiaSampling


@lru_cache(maxsize=64)
def drawing(sampling: DiaSampling, *, eos: int, cross_rope: bool) -> Callable[[mx.array, mx.array], mx.array]:
    """Build the draw of ids under one setting; -1 for a text whose logits are not all finite.

    It takes logits (G, B, C, V) of conditional and, with G = 2, unconditional rows, and uniform numbers
    (B, C, V), unused at temperature 0, and returns (B, C) int32.
    """
    candidates = candidates_v01 if cross_rope else candidates_0626

    @chain
    def ids(logits: mx.array, uniform: mx.array) -> mx.array:
        wide = logits.astype(mx.float32)
        # without guidance both are the conditional rows, which guidance leaves unchanged
        kept = candidates(wide[:1].squeeze(0), wide[-1:].squeeze(0), sampling, eos)
        drawn = mx.argmax(kept, axis=-1) if sampling.temperature == 0 else draw(kept, uniform)
        return marked(drawn, wide.flatten(0, 1))

    return ids


def accepting(config: DiaConfig) -> Callable[..., tuple[mx.array, mx.array]]:
    """Build the rule of DelayGrid.accept.

    It takes drawn ids (B, C), ends (B, C) of channel 0's EOS row or NEVER, the same in all channels, forced
    ids of the next row (B, C), and its number and phase (2, B, C); it returns the row and new ends.
    """
    eos, pad, delays = config.eos_token_id, config.pad_token_id, mx.array(config.delay_pattern)

    @chain
    def accept(
        ids: mx.array, lead: mx.array, ends: mx.array, forced: mx.array, numbers: mx.array
    ) -> tuple[mx.array, mx.array]:
        row, phase = (part.squeeze(0) for part in mx.split(numbers, 2))
        ending = (phase == LIMIT) | ((phase == SPEECH) & (lead == eos))
        ends = mx.where(ending & (ends == NEVER), row, ends)
        since = row - ends
        ids = mx.where(since == delays, eos, mx.where(since > delays, pad, ids))
        return mx.where(forced == FREE, mx.maximum(ids, 0), forced), ends

    return lambda ids, ends, *rest: accept(ids, ids[:, :1], ends, *rest)
