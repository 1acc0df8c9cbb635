"""The draws of a step of Dia2: an action and all codes of each text, each in one graph.

The rules are those of mlx_port.dia2.sampling.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlx_port.dia2.sampling import choose
from mlx_port.steps.chain import chain
from mlx_port.steps.dia2.fused import FusedDia2
from tts_core.dia2.sampling import Dia2Sampling


class Dia2Drawing:
    """Draws for texts of these settings, whose unconditional rows follow the others."""

    def __init__(self, fused: FusedDia2, samplings: Sequence[Dia2Sampling]):
        self.fused, config = fused, fused.network.config
        self.texts, self.copies = len(samplings), 1 + any(one.is_guided for one in samplings)
        guided = [one.is_guided for one in samplings]
        self.is_bare = None if len(set(guided)) == 1 else ~mx.array(guided)[:, None]
        groups: dict[Dia2Sampling, list[int]] = {}
        for place, sampling in enumerate(samplings):
            groups.setdefault(sampling, []).append(place)
        self.groups = [(sampling, mx.array(texts)) for sampling, texts in groups.items()]
        ids = mx.arange(config.audio_vocab_size)
        self.is_code = (ids != config.audio_pad_id) & (ids != config.audio_bos_id)
        self.action, self.codes = chain(self._action), chain(self._codes)
        mx.eval(self.is_code, self.is_bare)

    def _action(self, hidden: mx.array, noise: mx.array) -> mx.array:
        """Choose an action for each text. (R, D), (N, 1 + Q, ids) → (N,) int32, -1 where not finite."""
        logits = self.fused.actions(hidden)
        return self._marked(self._choose(logits, noise[:, 0], None), logits - logits)

    def _codes(self, hidden: mx.array, noise: mx.array, text: mx.array) -> mx.array:
        """Choose all codes of each text. text: (N, 2), the new ids of both streams, which stage 0 may read.

        → (N, Q) int32, -1 where not finite.
        """
        fused, depformer = self.fused, self.fused.network.depformer
        logits = fused.codes(hidden)
        found = [self._choose(logits, noise[:, 1], self.is_code)]
        bad = logits - logits  # NaN where logits are not finite
        projected, cache = fused.stages(hidden), fused.new_stages(len(hidden))
        for stage in range(len(depformer.stage_sets)):
            read = depformer.audio_embeds[stage](found[-1]).astype(fused.kind)
            if stage == 0 and fused.depth_text is not None:
                read = read + fused.depth_text(text).astype(fused.kind)
            logits = fused.stage(stage, projected, self._of_rows(read), cache)
            found.append(self._choose(logits, noise[:, 2 + stage], None))
            bad = bad[:, : logits.shape[-1]] + (logits - logits)
        return self._marked(mx.stack(found, axis=1), bad)

    def _choose(self, logits: mx.array, noise: mx.array, is_code: mx.array | None) -> mx.array:
        """Choose an id for each text, those of equal settings together. (R, V) → (N,) int32.

        noise: (N, ids).  is_code: ids that may be chosen as codes; None for all.
        """
        cond, uncond = self._pair(logits)
        noise = noise[:, : logits.shape[-1]]
        is_action = logits.shape[-1] == self.fused.network.config.action_vocab_size
        ids = None
        for sampling, texts in self.groups:
            choice = sampling.action if is_action else sampling.audio
            if len(self.groups) == 1:
                return choose(cond, uncond, choice, noise, is_code).astype(mx.int32)
            made = choose(cond[texts], uncond[texts], choice, noise[texts], is_code).astype(mx.int32)
            ids = mx.zeros(len(cond), mx.int32) if ids is None else ids
            ids = mx.put_along_axis(ids, texts, made, axis=0)
        assert ids is not None
        return ids

    def _pair(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return both rows of each text, the same one without guidance. (R, ...) → (N, ...) each."""
        return x[: self.texts], x[-self.texts :]

    def _of_rows(self, x: mx.array) -> mx.array:
        """Repeat each text's row for all rows of its own. (N, E) → (R, E)."""
        return x if self.copies == 1 else mx.concatenate([x, x])

    def _marked(self, ids: mx.array, bad: mx.array) -> mx.array:
        """Set ids to -1 in texts of which a row of `bad`, (R, V), is not finite."""
        cond, uncond = self._pair(mx.isfinite(bad).all(axis=-1, keepdims=True))
        finite = cond & (uncond if self.is_bare is None else uncond | self.is_bare)
        return mx.where(finite if ids.ndim == 2 else finite[:, 0], ids, -1)
