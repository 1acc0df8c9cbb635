"""The draws of a step of Dia2: an action and all codes of each text, each in one graph."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from mlx_port.sampling import draw_rows
from mlx_port.steps.chain import chain
from mlx_port.steps.dia2.fused import FusedDia2
from tts_core.dia2.inputs import allowed_ids
from tts_core.nn.sampling import Sampler


class Dia2Samplers(NamedTuple):
    """Of actions, of codes of the first stream and of the others."""

    action: Sampler
    first: Sampler
    others: Sampler


class Dia2Settings(NamedTuple):
    """Of N texts: tables of actions and of codes, and (N, 1), which texts have unconditional rows."""

    action: mx.array
    codes: mx.array
    guided: mx.array


class Dia2Drawing:
    """Draws by these samplers. Unconditional rows follow the others."""

    def __init__(self, fused: FusedDia2, samplers: Dia2Samplers):
        self.fused, self.samplers, config = fused, samplers, fused.network.config
        self.allowed = mx.array(
            allowed_ids(config.audio_vocab_size, (config.audio_pad_id, config.audio_bos_id))
        )
        self.action, self.codes = chain(self._action), chain(self._codes)
        mx.eval(self.allowed)

    def _action(self, hidden: mx.array, noise: mx.array, settings: Dia2Settings) -> mx.array:
        """Choose an action for each text. (R, D), (N, 1 + Q, ids) → (N,) int32, -1 where not finite."""
        logits = self.fused.actions(hidden)
        pair = _pair(logits, settings)
        sampler = self.samplers.action
        ids = draw_rows(pair, sampler.named(settings.action, 2), noise[:, 0, : pair[0].shape[1]], sampler)
        return mx.where(_finite(logits, settings)[:, 0], ids, -1)

    def _codes(self, hidden: mx.array, noise: mx.array, text: mx.array, settings: Dia2Settings) -> mx.array:
        """Choose all codes of each text. text: (N, 2), the new ids of both streams, which stage 0 may read.

        → (N, Q) int32, -1 where not finite.
        """
        fused, depformer = self.fused, self.fused.network.depformer
        copies, table = len(hidden) // len(noise), self.samplers.others.named(settings.codes, 2)
        logits = fused.codes(hidden)
        pair = _pair(logits, settings)
        numbers = noise[:, 1, : pair[0].shape[1]]
        found = [draw_rows(pair, table, numbers, self.samplers.first, allowed=self.allowed)]
        bad = logits - logits  # NaN where logits are not finite
        projected, cache = fused.stages(hidden), fused.new_stages(len(hidden))
        for stage in range(len(depformer.stage_sets)):
            read = depformer.audio_embeds[stage](found[-1]).astype(fused.kind)
            if stage == 0 and fused.depth_text is not None:
                read = read + fused.depth_text(text).astype(fused.kind)
            own = read if copies == 1 else mx.broadcast_to(read[None], (2, *read.shape)).flatten(0, 1)
            logits = fused.stage(stage, projected, own, cache)
            pair = _pair(logits, settings)
            size = pair[0].shape[1]
            found.append(draw_rows(pair, table, noise[:, 2 + stage, :size], self.samplers.others))
            bad = bad[:, :size] + (logits - logits)
        return mx.where(_finite(bad, settings), mx.stack(found, axis=1), -1)


def _pair(logits: mx.array, settings: Dia2Settings) -> tuple[mx.array, ...]:
    """Return both rows of each text; texts without guidance have none of their own. (R, V) → (N, V) each."""
    count = len(settings.guided)
    if len(logits) == count:
        return (logits,)
    return logits[:count], mx.where(settings.guided, logits[count:], logits[:count])


def _finite(logits: mx.array, settings: Dia2Settings) -> mx.array:
    """Return which texts have only finite numbers in their rows. (R, V) → (N, 1)."""
    pair = _pair(mx.isfinite(logits).all(axis=-1, keepdims=True), settings)
    return pair[0] & pair[-1]
