"""Dia2 captured: a graph of the transformer, the actions, then all codes, for each number of slots in use.

The host reads the actions from the middle of the graph, and answers with the text of the next step while the
codes are still being drawn; it never waits for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder, sizes
from torch_ref.cuda.dia2.fused_stack import runs
from torch_ref.cuda.dia2.step import Dia2Buffers, FusedDia2
from torch_ref.cuda.early_read import EarlyRead
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.dia2 import decoder as plain
from torch_ref.dia2.dia2 import Dia2
from torch_ref.host import Host
from tts_core.dia2.inputs import SAMPLER, Dia2Inputs
from tts_core.nn.packed import Packed


class CapturedDia2(CapturedDecoder):
    """Both networks for `texts` texts that read at most `capacity` steps.

    guided: unconditional rows run too, after the conditional ones.
    """

    def __init__(self, step: FusedDia2, *, texts: int, capacity: int, guided: bool):
        self.fused, self.guided, self.host = step, guided, Host(step.network.transformer.cb0_head)
        self.state = Dia2Buffers.empty(step.network, texts, capacity, guided=guided)
        self.inputs, self.noise = self.state.rows.inputs, self.state.rows.noise[None]
        self.acted: EarlyRead = EarlyRead(self.state.rows.actions)
        self.reader = PromptReader(step.trunk, self.state.memory, self.host)
        self.parts = {slots: self.state.first(slots) for slots in sizes(texts)}

    @property
    def sizes(self) -> Sequence[int]:
        return [*self.parts]

    def prepare(self) -> None:
        self.reader.prepare(self.state.x)

    def join(self, texts: Mapping[int, Dia2Inputs]) -> Sequence[int]:
        given, to_device = [*texts.values()], self.host.to_device
        if any(item.positions for item in given):
            self._read_prefixes({slot: text.before for slot, text in texts.items() if text.positions})
        settings = np.stack([SAMPLER.table(item.sampling.numbers) for item in given])
        self.state.rows.settings[to_device(np.array([*texts]))] = to_device(settings)
        return [item.positions for item in given]

    def run(self, slots: int) -> Tensor:
        part = self.parts[slots]
        part.rows.noise.log_().neg_().log_()
        projected = self.fused.read(part)
        self.acted.put(part.rows.actions)
        return self.fused.codes(part, projected)

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.state.rows.codes[None]

    def compiling(self) -> list[Callable[[], object]]:
        calls = [call for part in self.parts.values() for call in self.fused.compiling(part)]
        return [*calls, lambda: self.reader.warm(self.state.x)]

    def _read_prefixes(self, before: Mapping[int, np.ndarray]) -> None:
        """Compute keys and values of prefixes' steps, (P, 2 + Q) each, by slot."""
        network, packed, copies = self.fused.network, Packed.of(map(len, before.values())), 1 + self.guided
        tokens = self.host.to_device(np.concatenate([*before.values()]))[None].repeat(copies, 1, 1)
        tokens[1:, :, 0], tokens[1:, :, 1] = network.config.text_zero_id, network.config.text_pad_id
        prompts = [
            PromptRows(copy * packed.total + span.start, span.stop - span.start, slot * copies + copy)
            for copy in range(copies)
            for slot, span in zip(before, packed.spans, strict=True)
        ]
        self.reader(network.transformer.embed(tokens).flatten(0, 1), prompts)


def make_slots(network: Dia2, *, texts: int, capacity: int, guided: bool) -> RunningBatch:
    """Open a running batch in the fastest form that runs this network: captured or plain.

    texts: that run at once.
    capacity: steps that a text reads at most.
    guided: some texts may be.
    """
    if not runs(network):
        return plain.make_slots(network, texts=texts, capacity=capacity)
    with torch.inference_mode():
        decoder = CapturedDia2(FusedDia2(network), texts=texts, capacity=capacity, guided=guided)
    return CapturedBatch(decoder, texts=texts, capacity=capacity)
