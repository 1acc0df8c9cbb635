"""Slots in float32 on a CPU: a text's numbers, and so its ids, do not depend on the other texts."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from torch_ref.cpu.dia.few_rows import SourceRuns, few_rows, near, one_thread
from torch_ref.dia.dia import Dia
from torch_ref.dia.slots import DiaSlots
from tts_core.dia.joining import DiaJoining
from tts_core.nn.row_calls import alike


class FewSlots(DiaSlots):
    """`texts` slots of a network that has the form of few rows. nothing: as in DiaSlots."""

    def __init__(self, network: Dia, nothing: Tensor | None, *, texts: int):
        super().__init__(network, nothing, texts=texts)
        form = few_rows(network)
        assert form is not None
        self.form = form
        self.heard: SourceRuns | None = None  # of the texts that run

    def join(self, slot: int, text: DiaJoining) -> None:
        self.heard = None
        super().join(slot, text)

    def leave(self, slot: int) -> None:
        self.heard = None
        super().leave(slot)

    def _step(self) -> np.ndarray:
        with one_thread() if self.form.small else nullcontext():
            return super()._step()

    def _logits(self) -> Tensor:
        texts = list(self.running.values())
        last = np.stack([text.grid.rows[text.grid.filled - 1] for text in texts])
        places = [text.grid.filled - 1 for text in texts]
        self._make_room(max(places) + 1)
        if self.heard is None:
            runs = alike([len(text.joining.tokens) for text in texts])
            self.heard = SourceRuns(runs, [near(keys[0], values[0], runs) for keys, values in self.source])
        logits = self.form.next_logits(
            torch.from_numpy(np.tile(last, (self.groups, 1))),
            [(keys.flatten(0, 1), values.flatten(0, 1)) for keys, values in self.own],
            places,
            self.heard,
            self.constants,
        )
        return logits.view(len(logits), last.shape[1], -1)
