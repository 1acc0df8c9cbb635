"""The draws of a frame's other codes, all in one graph. The rules are those of mlx_port.qwen3.sampling."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from mlx_port.qwen3.sampling import candidates, draw
from mlx_port.steps.chain import chain
from mlx_port.steps.qwen3.fused import FusedQwen3
from tts_core.qwen3.sampling import Choice


class OtherCodes:
    """Draws for rows of these choices; None for rows without a text."""

    def __init__(self, fused: FusedQwen3, choices: Sequence[Choice | None]):
        self.fused = fused
        rows: dict[Choice, list[int]] = {}
        for row, choice in enumerate(choices):
            if choice is not None:
                rows.setdefault(choice, []).append(row)
        self.is_alike = len(rows) == 1 and None not in choices
        self.groups = [(choice, mx.array(every)) for choice, every in rows.items()]
        self.draw = chain(self._draw)
        mx.eval(*(every for _, every in self.groups))

    def _draw(self, hidden: mx.array, first: mx.array, uniform: mx.array) -> tuple[mx.array, mx.array]:
        """Draw the other codes of each frame. hidden: (R, D).  first: (R,).  uniform: (R, (Q - 1) V').

        → (R, Q) codes, and (R,) whether all logits were finite.
        """
        fused, predictor = self.fused, self.fused.network.talker.code_predictor
        size, frame = fused.network.config.codebook_size, fused.new_frame(len(first))
        fused.read(hidden, 0, frame)
        codes, bad = [first], mx.zeros((len(first), size))
        x = fused.network.talker.model.codec_embedding(first)
        for stage in range(predictor.stages):
            logits = fused.stage(stage, fused.read(x, stage + 1, frame))
            bad = bad + (logits - logits)  # NaN where logits are not finite
            codes.append(self._choose(logits, uniform[:, stage * size : (stage + 1) * size]))
            x = predictor.embed(stage, codes[-1])
        return mx.stack(codes, axis=1), mx.isfinite(bad).all(axis=-1)

    def _choose(self, logits: mx.array, uniform: mx.array) -> mx.array:
        """Choose an id for each row, those of equal choices together. (R, V') → (R,)."""
        ids = mx.zeros(len(logits), mx.int32)
        for choice, rows in self.groups:
            if self.is_alike:
                return draw(candidates(logits, choice), choice, uniform).astype(mx.int32)
            made = draw(candidates(logits[rows], choice), choice, uniform[rows]).astype(mx.int32)
            ids = mx.put_along_axis(ids, rows, made, axis=0)
        return ids
