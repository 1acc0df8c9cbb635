"""Dia captured: one graph of the decoder, its draws and the grid's rule.

Positions, lengths, seeds, settings and ends are on the device, one of each a text, so that a step takes
nothing from the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.cpu.dia import decoder as plain
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.dia.draws import DiaDraws, DiaProgress, draw
from torch_ref.cuda.dia.fused import DecoderMemory, FusedDecoder, runs
from torch_ref.cuda.dia.reading import FusedReader
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.cuda.sampling import own_rows
from torch_ref.dia.dia import Dia
from torch_ref.host import Host
from tts_core.dia.grid import DiaInputs
from tts_core.dia.options import SAMPLER_0626, DiaSampling, allowed_ids
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import columns

NOISE_STEPS = 16  # steps whose noise is drawn at once
DRAWN_STEPS = 64  # draws that are kept


class CapturedDia(CapturedDecoder):
    """The decoder for `texts` texts of at most `text_rows` bytes and `capacity` grid rows."""

    steps = 2  # with 4 the first sound came 3 ms later, and 64 streams were no faster

    def __init__(self, decoder: FusedDecoder, *, texts: int, capacity: int, text_rows: int):
        self.fused, self.network = decoder, decoder.network
        self.reader, self.host = FusedReader(self.network), Host(self.network.logits_dense)
        self.texts, self.guided, config = texts, decoder.constants is not None, self.network.config
        self.memory = DecoderMemory.empty(self.network, texts, capacity, text_rows, guided=self.guided)
        self.read_texts = PromptReader(self.reader, self.memory, self.host)
        self.read_rows = PromptReader(decoder, self.memory, self.host, most=0)  # recordings differ in length
        device, channels = self.network.logits_dense.weight.device, config.decoder_config.num_channels

        def whole(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.states = whole(len(DiaProgress._fields), texts)  # so that joining is one copy
        self.rows = DiaDraws(
            **DiaProgress(*self.states)._asdict(),
            cells=whole(texts, capacity, channels),
            tick=whole(texts),
            drawn=whole(DRAWN_STEPS, texts, channels),
            settings=torch.zeros(texts, len(columns(DiaSampling)._fields), device=device),
            arrivals=whole(texts),
            own=own_rows(texts, device),
        )
        self.delays = torch.tensor(config.delay_pattern, dtype=torch.int32, device=device)
        vocabulary = config.decoder_config.vocab_size
        allowed = allowed_ids(channels, vocabulary, config.eos_token_id)
        self.allowed = torch.from_numpy(allowed).to(device, torch.int8)
        self.noise = torch.full((NOISE_STEPS, texts, channels, vocabulary), 0.5, device=device)
        self.clear()

    def prepare(self) -> None:
        self.read_texts.prepare(self.reader.table[:1], self.memory.source_keys[0])

    def join(self, texts: Mapping[int, DiaInputs]) -> Sequence[int]:
        """Read texts, and the rows before the last known ones; the next step reads that and draws."""
        to_device, given = self.host.to_device, [*texts.values()]
        slots, packed_texts = to_device(np.array([*texts])), Packed.of(len(text.tokens) for text in given)
        tokens = to_device(np.concatenate([text.tokens for text in given]))
        prompts = zip(texts, packed_texts.spans, packed_texts.lengths, strict=True)
        self.read_texts(
            F.embedding(tokens, self.reader.table),
            [PromptRows(span.start, count, slot) for slot, span, count in prompts],
        )
        self.memory.lengths[slots] = to_device(np.array(packed_texts.lengths))
        if any(text.positions for text in given):
            self._read_rows({slot: text.grid[: text.positions] for slot, text in texts.items()})
        cells = np.zeros((len(given), max(len(text.grid) for text in given), len(self.delays)), np.int32)
        for own, text in zip(cells, given, strict=True):
            own[: len(text.grid)] = text.grid
        self.rows.cells[slots, : cells.shape[1]] = to_device(cells)
        self.rows.settings[slots] = to_device(SAMPLER_0626.table([text.sampling for text in given]))
        states = [
            DiaProgress(filled=text.filled, prompt=text.prompt_frames, limit=text.max_frames, ends=-1)
            for text in given
        ]
        self.states[:, slots] = to_device(np.array(states, np.int32).T)
        return [text.positions for text in given]

    def leave(self, slot: int) -> None:
        self.rows.limit[slot], self.rows.filled[slot] = -1, 1

    def run(self, slots: int) -> Tensor:
        logits = self.fused.logits(self.rows, self.memory)
        self._draw(logits)
        return logits

    def ids(self, tick: int, steps: int) -> Tensor:
        start, end = tick % DRAWN_STEPS, (tick + steps - 1) % DRAWN_STEPS + 1
        drawn = self.rows.drawn
        return drawn[start:end] if start < end else torch.cat((drawn[start:], drawn[:end]))

    def clear(self) -> None:
        """Free all slots."""
        for state in self.rows[:-1]:  # all but `own`
            state.zero_()
        self.rows.filled.fill_(1)
        self.rows.limit.fill_(-1)
        self.rows.ends.fill_(-1)
        self.memory.lengths.fill_(1)

    def compiling(self) -> list[Callable[[], object]]:
        logits = self.fused.head.new_zeros(len(self.memory.keys[0]), len(self.fused.head))
        return [
            *self.fused.compiling(self.memory),
            lambda: self.fused.embed(self.rows, len(self.memory.keys[0])),
            lambda: self._draw(logits),
            lambda: self.read_texts.warm(self.reader.table[:1]),
            lambda: self.read_rows.warm(self.fused.table[:1]),
        ]

    def _read_rows(self, before: Mapping[int, np.ndarray]) -> None:
        """Compute keys and values of grid rows, (P, C) of each text, by slot."""
        packed = Packed.of(map(len, before.values()))
        rows = self.host.to_device(np.concatenate([*before.values()]))[None]
        prompts = [
            PromptRows(copy * packed.total + span.start, span.stop - span.start, copy * self.texts + slot)
            for copy in range(1 + self.guided)
            for slot, span in zip(before, packed.spans, strict=True)
        ]
        x = self.network.model.decoder.embeddings(rows)[0]
        self.read_rows(x.repeat(1 + self.guided, 1), prompts)

    def _draw(self, logits: Tensor) -> None:
        draw(logits, self.noise, self.delays, self.allowed, self.rows, self.network.config)


@torch.inference_mode()
def make_slots(
    network: Dia, empty: Tensor | None, *, texts: int, capacity: int, text_rows: int
) -> RunningBatch:
    """Open a running batch in the fastest form that runs this network: captured, for a CPU, or plain.

    empty: (1, 1, source width), the encoding of the empty text; None without guidance.
    texts: that run at once.
    capacity: rows of a grid at most.
    text_rows: bytes of a text at most.
    """
    if not runs(network):
        return plain.make_slots(network, empty, texts=texts, capacity=capacity)
    decoder = CapturedDia(FusedDecoder(network, empty), texts=texts, capacity=capacity, text_rows=text_rows)
    return CapturedBatch(decoder, texts=texts, capacity=capacity)
