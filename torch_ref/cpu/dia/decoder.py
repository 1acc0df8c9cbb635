"""Dia in a running batch in float32 on a CPU: a text's numbers do not depend on the other texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cpu.dia.few_rows import SourceRuns, contiguous, few_rows, one_thread
from torch_ref.dia.decoder import DiaDecoder, DiaState
from torch_ref.dia.dia import Dia
from torch_ref.layers.row_cache import RowCache, RowPositions
from tts_core.dia.grid import DiaGiven
from tts_core.nn.row_calls import alike


class FewRowsDecoder(DiaDecoder):
    """A decoder that has the form of few rows. empty: as in DiaDecoder."""

    def __init__(self, network: Dia, empty: Tensor | None):
        super().__init__(network, empty)
        form = few_rows(network)
        assert form is not None
        self.form = form
        self.source: tuple[Any, SourceRuns] | None = None  # of the texts that run, with their keys

    def step(
        self, state: DiaState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> tuple[Tensor, DiaGiven]:
        known, copies, count = DiaGiven.of(given), len(at.on_host) // len(given), len(at.on_host)
        if self.source is None or self.source[0] is not state.keys:
            runs = alike(known.lengths.tolist())
            pairs = zip(state.keys, state.values, strict=True)
            self.source = state.keys, SourceRuns(runs, [contiguous(*pair, runs) for pair in pairs])
        with self._threads():
            logits = self.form.next_logits(
                state.tokens.repeat(copies, 1),
                [(cache.keys[:count], cache.values[:count]) for cache in caches],
                at.on_host[: len(given)].tolist(),
                self.source[1],
                self.constants if copies == 2 else None,
            )
        return logits.unflatten(1, self.numbers), known

    def draw(self, *made: Any) -> tuple[Tensor, DiaState]:
        with self._threads():
            return super().draw(*made)

    def _threads(self) -> Any:
        return one_thread() if self.form.small else nullcontext()


@torch.inference_mode()
def make_slots(
    network: Dia, empty: Tensor | None, *, texts: int, capacity: int, **bounds: int
) -> RunningBatch:
    """Open a running batch as torch_ref.dia.decoder does, with the form of few rows where there is one."""
    form = DiaDecoder if few_rows(network) is None else FewRowsDecoder
    return RunningBatch(form(network, empty), texts=texts, capacity=capacity - 1)
