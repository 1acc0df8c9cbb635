"""Qwen3-TTS captured: a graph of the talker, the first code, then the predictor's stages and draws.

A graph for each number of slots in use: a few texts do not pay for free slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder, sizes
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.cuda.qwen3.step import FusedQwen3, Qwen3Captured, runs
from torch_ref.host import Host
from torch_ref.qwen3 import decoder as plain
from torch_ref.qwen3.decoder import embedded
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.nn.packed import Packed
from tts_core.qwen3.layout import FIRST, Qwen3Inputs


class CapturedQwen3(CapturedDecoder):
    """Both networks for `texts` texts of at most `capacity` positions."""

    def __init__(self, network: Qwen3, *, texts: int, capacity: int):
        self.talker, self.host = network.talker, Host(network.talker.codec_head)
        device = network.talker.codec_head.weight.device
        self.inputs: Tensor = torch.zeros(3, texts, dtype=torch.int64, device=device)
        self.state = Qwen3Captured.empty(network, self.inputs, capacity)
        self.noise = self.state.rows.noise[None]
        self.fused = FusedQwen3(network)  # whose joined weights the graphs read
        self.reader = PromptReader(self.fused.trunk, self.state.memory, self.host)
        self.parts = {slots: self.state.first(slots, network.config) for slots in sizes(texts)}

    @property
    def sizes(self) -> Sequence[int]:
        return [*self.parts]

    def prepare(self) -> None:
        self.reader.prepare(self.state.x)

    def join(self, texts: Mapping[int, Qwen3Inputs]) -> Sequence[int]:
        """Read what comes before texts' speech but its last row; the next step reads that and draws."""
        rows, to_device, given = self.state.rows, self.host.to_device, [*texts.values()]
        x, spans = (
            embedded(self.talker, self.host, given)[0],
            Packed.of(item.positions for item in given).spans,
        )
        prompts = [
            PromptRows(span.start, span.stop - span.start - 1, slot)
            for slot, span in zip(texts, spans, strict=True)
        ]
        self.reader(x, prompts)
        slots, last = to_device(np.array([(prompt.row, prompt.first + prompt.count) for prompt in prompts]).T)
        rows.last[slots] = x[last]
        rows.seen[slots] = 0
        rows.settings[slots] = to_device(np.stack([FIRST.table(item.sampling.numbers) for item in given]))
        return [prompt.count for prompt in prompts]

    def run(self, slots: int) -> Tensor:
        return self.fused.run(self.parts[slots])

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.state.rows.codes[None]

    def compiling(self) -> list[Callable[[], object]]:
        calls = [call for part in self.parts.values() for call in self.fused.compiling(part)]
        return [*calls, lambda: self.reader.warm(self.state.x)]


@torch.inference_mode()
def make_slots(network: Qwen3, *, texts: int, capacity: int) -> RunningBatch:
    """Open a captured running batch where the kernels support the network, else a plain one."""
    if not runs(network):
        return plain.make_slots(network, texts=texts, capacity=capacity)
    return CapturedBatch(
        CapturedQwen3(network, texts=texts, capacity=capacity), texts=texts, capacity=capacity
    )
