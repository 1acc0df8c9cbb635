"""The end of Dia's step: ids from logits, and the grid's rule on the device.

Draws are those of mlx_port.sampling, rows follow tts_core.dia.grid.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import mlx.core as mx

from mlx_port.guard import marked
from mlx_port.sampling import draw_rows
from mlx_port.steps.chain import chain
from tts_core.dia.config import DiaConfig
from tts_core.dia.grid import FREE
from tts_core.dia.options import allowed_ids
from tts_core.nn.sampling import Sampler


@lru_cache(maxsize=64)
def drawing(sampler: Sampler, config: DiaConfig) -> Callable[[mx.array, mx.array, mx.array], mx.array]:
    """Build the draw of ids; -1 for a text whose logits are not all finite.

    It takes logits (G, B, C, V) of conditional and, with G = 2, unconditional rows, the table of settings,
    and uniform numbers (B, C, V), and returns (B, C) int32.
    """
    shape, eos = config.decoder_config, config.eos_token_id
    allowed = mx.array(allowed_ids(shape.num_channels, shape.vocab_size, eos))

    @chain
    def ids(logits: mx.array, settings: mx.array, uniform: mx.array) -> mx.array:
        table, wide = sampler.named(settings, 3), logits.astype(mx.float32)
        cond, last = wide[:1].squeeze(0), wide[-1:].squeeze(0)
        # a text without guidance has no unconditional row of its own
        uncond = mx.where(table.cfg_scale != 0, last, cond)
        drawn = draw_rows((cond, uncond), table, uniform, sampler, allowed=allowed, end=eos)
        # `uncond` - `uncond`, but computed apart, so that guidance is one launch
        return marked(drawn, (cond - cond) + mx.where(table.cfg_scale == 0, 0, last - last))

    return ids


def accepting(config: DiaConfig) -> Callable[..., tuple[mx.array, mx.array]]:
    """Build the rule of DelayGrid.accept.

    It takes drawn ids (B, C), rows since channel 0's EOS (B, C), negative before it and the same in all
    channels, forced ids of the next row (B, C), and 1 where it is the last of speech (B, C); it returns the
    row, and the rows since the EOS.
    """
    eos, pad, delays = config.eos_token_id, config.pad_token_id, mx.array(config.delay_pattern)

    @chain
    def accept(
        ids: mx.array, lead: mx.array, since: mx.array, forced: mx.array, is_last: mx.array
    ) -> tuple[mx.array, mx.array]:
        ending = (lead == eos) | (is_last > 0)
        since = mx.where(ending & (since < 0), 0, since + 1)
        ids = mx.where(since == delays, eos, mx.where(since > delays, pad, ids))
        return mx.where(forced == FREE, mx.maximum(ids, 0), forced), since

    return lambda ids, since, *rest: accept(ids, ids[:, :1], since, *rest)
