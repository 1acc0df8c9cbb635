"""The end of MARS5's step: ids from logits. Draws follow mlx_port.mars5.sampling."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx

from mlx_port.mars5.sampling import draw_ids
from mlx_port.steps.chain import chain
from tts_core.mars5.sampling import Mars5Numbers

FORMS_KEPT = 16  # compiled draws, one for each setting


class Drawing:
    """Compiled draws. lowest, end: ids of CodecVocabulary."""

    def __init__(self, lowest: int, end: int):
        self.lowest, self.end = lowest, end
        self.forms: dict[Mars5Numbers, Callable[..., tuple[mx.array, mx.array]]] = {}

    def ids(self, numbers: Mars5Numbers) -> Callable[..., tuple[mx.array, mx.array]]:
        """Return the draw under one setting.

        It takes logits (N, V), the ids whose repetition is penalized, and penalties of the end and uniform
        numbers, (N, 1) each. → ids (N,), and those that the next step reads.
        """
        if numbers not in self.forms:
            if len(self.forms) == FORMS_KEPT:
                self.forms.clear()
            self.forms[numbers] = chain(self._form(numbers))
        return self.forms[numbers]

    def _form(self, numbers: Mars5Numbers) -> Callable[..., tuple[mx.array, mx.array]]:
        def drawn(
            logits: mx.array, seen: mx.array, penalty: mx.array, uniform: mx.array
        ) -> tuple[mx.array, mx.array]:
            ids = draw_ids(logits, seen, penalty, uniform, numbers, lowest=self.lowest, end=self.end)
            return ids, mx.maximum(ids, 0)

        return drawn
