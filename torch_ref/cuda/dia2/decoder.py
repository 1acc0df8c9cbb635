"""Dia2 captured: one graph of the transformer, the actions, then all codes.

The host reads the actions from the middle of the graph, and answers with the text of the next step while the
codes are still being drawn; it never waits for these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.dia2.fused_stack import runs
from torch_ref.cuda.dia2.step import Dia2Buffers, FusedDia2
from torch_ref.cuda.early_read import EarlyRead
from torch_ref.dia2 import decoder as plain
from torch_ref.dia2.dia2 import Dia2
from torch_ref.host import Host
from tts_core.dia2.inputs import SAMPLER, Dia2Inputs


class CapturedDia2(CapturedDecoder):
    """Both networks for `texts` texts that read at most `room` steps.

    guided: unconditional rows run too, after the conditional ones.
    """

    def __init__(self, step: FusedDia2, *, texts: int, room: int, guided: bool):
        self.fused, self.guided, self.host = step, guided, Host(step.network.transformer.cb0_head)
        self.state = Dia2Buffers.empty(step.network, texts, room, guided=guided)
        self.inputs, self.noise = self.state.rows.inputs, self.state.rows.noise[None]
        self.acted: EarlyRead = EarlyRead(self.state.rows.actions)

    def join(self, slot: int, text: Dia2Inputs) -> int:
        self.state.rows.settings[slot] = self.host.to_device(SAMPLER.table(text.sampling.numbers))
        if text.positions:
            self._read_prefix(slot, text.before)
        return text.positions

    def run(self, slots: int) -> Tensor:
        self.noise.log_().neg_().log_()
        projected = self.fused.read(self.state)
        self.acted.put(self.state.rows.actions)
        return self.fused.codes(self.state, projected)

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.state.rows.codes[None]

    def compiling(self) -> list[Callable[[], object]]:
        return self.fused.compiling(self.state)

    def _read_prefix(self, slot: int, before: np.ndarray) -> None:
        """Compute keys and values of a prefix's steps. (P, 2 + Q)."""
        network, memory, count = self.fused.network, self.state.memory, len(before)
        tokens = self.host.to_device(before)[None].repeat(1 + self.guided, 1, 1)
        tokens[1:, :, 0], tokens[1:, :, 1] = network.config.text_zero_id, network.config.text_pad_id
        cache = network.transformer.new_cache()
        network.transformer(tokens, 0, cache)
        for index, held in enumerate(cache):
            assert held.buffers is not None
            for own, read in zip((memory.keys[index], memory.values[index]), held.buffers, strict=True):
                for copy, rows in enumerate(read):
                    own[copy * self.noise.shape[1] + slot, :, :count] = rows[:, :count]


def make_slots(network: Dia2, *, texts: int, room: int, guided: bool) -> RunningBatch:
    """Open a running batch in the fastest form that runs this network: captured or plain.

    texts: that run at once.
    room: steps that a text reads at most.
    guided: some texts may be.
    """
    if not runs(network):
        return plain.make_slots(network, texts=texts, room=room)
    with torch.inference_mode():
        decoder = CapturedDia2(FusedDia2(network), texts=texts, room=room, guided=guided)
    return CapturedBatch(decoder, texts=texts, room=room)
