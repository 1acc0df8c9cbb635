"""Slots for texts that share the autoregressive network's steps: each joins and leaves between two of them.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torch_ref.cuda.capture import capture
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.many_rows import ManyRows, runs
from torch_ref.mars5.step import draw_ids
from torch_ref.reading import Reading, begin_read, finish_read
from tts_core.mars5.rows import BatchRows, Joining


class Slots:
    """`texts` slots, each a row of the network with `room` positions for speaker and ids; allocated at once.

    lowest, end: ids of CodecVocabulary.
    """

    steps, ahead = 1, 0  # of a launch, and launches before one is read, that keep the device busy

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        self.network, self.lowest, self.end = network, lowest, end
        self.host = Host(network.embed)
        self.plan = BatchRows(texts, room)
        self.at = RowPositions(min(network.config.sliding_window, room))
        config, weight = network.config, network.embed.weight
        buffer = texts, config.num_attention_heads, self.at.capacity, config.head_dim
        self.cache = [
            RowCache(weight.new_zeros(buffer), weight.new_zeros(buffer), self.at) for _ in network.ar.layers
        ]
        self.rotary = network.positions(room)
        self.tokens = torch.zeros(texts, 1, dtype=torch.int64, device=weight.device)
        # last ids of each text, a ring; the vocabulary's size is an empty place
        self.recent = self._nothing(1)

    @torch.inference_mode()
    def join(self, slot: int, text: Joining) -> None:
        """Read a text's prompt but its last id and let it start with the next step; its slot must be free.

        The prompt must fit in the sliding window.
        """
        assert len(text.prompt.tokens) <= self.network.config.sliding_window
        self.plan.join(slot, text)
        network, prompt = self.network, self.host.to_device(text.prompt.tokens[None])
        speaker = network.speaker(self.host.to_device(text.codes.T[None]))
        rows = network.rows(speaker, prompt[:, :-1])
        cache = network.new_cache(rows.shape[1])
        network.ar(rows, self.rotary(0, rows.shape[1]), cache)
        for layer, held in zip(self.cache, cache, strict=True):
            assert held.buffers is not None
            layer.fill(slot, held.buffers[0][0], held.buffers[1][0])
        self.tokens[slot] = prompt[0, -1:]
        if text.window > self.recent.shape[1]:
            wider = self._nothing(text.window)
            wider[:, : self.recent.shape[1]] = self.recent
            self.recent = wider
        self.recent[slot] = network.config.vocab_size

    def leave(self, slot: int) -> None:
        """Free a slot."""
        self.plan.leave(slot)

    @torch.inference_mode()
    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        plan, vocabulary, drawn = self.plan, self.network.config.vocab_size, []
        groups = [(options, self.host.to_device(slots)) for options, slots in plan.groups()]
        for _ in range(steps):
            inputs = plan.step()
            logits = self.logits(inputs.positions)
            place, repeats, penalty, uniform = map(self.host.to_device, inputs[1:])
            ids = torch.zeros(plan.slots, dtype=torch.int64, device=logits.device)
            for options, slots in groups:
                seen = torch.where(repeats[slots, None], self.recent[slots], vocabulary)
                ids[slots] = draw_ids(
                    logits[slots],
                    seen,
                    penalty[slots, None],
                    uniform[slots, None],
                    options,
                    lowest=self.lowest,
                    end=self.end,
                )
                self.recent[slots, place[slots]] = ids[slots].clamp(min=0)
                self.tokens[slots] = ids[slots].clamp(min=0)[:, None]
            drawn.append(ids)
        return begin_read(torch.stack(drawn))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def logits(self, positions: np.ndarray) -> Tensor:
        """Compute logits of the rows in use, (R, V) float32. positions: (R,) int32."""
        seen = min(int(positions.max()) + 1, self.at.capacity)
        at = self.host.to_device(positions).long()
        self.at.move(at, seen)
        rows = self.network.embed(self.tokens[: len(positions)])
        return self.network.next_logits(rows, self.rotary(at[:, None, None], 1), self.cache)

    def _nothing(self, window: int) -> Tensor:
        """Build empty places for `window` ids of each text."""
        shape, vocabulary = (self.plan.slots, window), self.network.config.vocab_size
        return torch.full(shape, vocabulary, device=self.network.embed.weight.device)


class GraphSlots(Slots):
    """Slots whose network is captured as a CUDA graph of all rows, with kernels where they run."""

    steps, ahead = 4, 1

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        super().__init__(network, texts=texts, room=room, lowest=lowest, end=end)
        device = self.tokens.device
        self.positions = torch.zeros(texts, dtype=torch.int64, device=device)
        self.layers = ManyRows(network, self.cache, self.rotary, self.positions) if runs(network) else None
        with torch.inference_mode():
            # what the warm-up writes, at position 0, each text that joins writes anew
            self.graph, self.computed = capture(self._compute, device, again=lambda: None)

    def logits(self, positions: np.ndarray) -> Tensor:
        """Compute logits of all rows; the next call overwrites them. positions: of those in use."""
        self.positions.zero_()[: len(positions)] = self.host.to_device(positions).long()
        self.graph.replay()
        return self.computed

    def _compute(self) -> Tensor:
        rows = self.network.embed(self.tokens)
        if self.layers is not None:
            return self.layers(rows[:, 0].contiguous())
        self.at.move(self.positions, self.at.capacity)
        rotation = self.rotary(self.positions[:, None, None], 1)
        return self.network.next_logits(rows, rotation, self.cache)


def make_slots(network: CodecLM, *, texts: int, room: int, lowest: int, end: int) -> Slots:
    """Build the fastest form of the slots for the network's device."""
    form = GraphSlots if network.embed.weight.is_cuda else Slots
    return form(network, texts=texts, room=room, lowest=lowest, end=end)
