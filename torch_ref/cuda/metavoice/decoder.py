"""MetaVoice's first stage captured: ids in, the network on all rows, the next ids out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.metavoice.draws import MetaVoiceDraws, draw_ids, embed_rows
from torch_ref.cuda.metavoice.rows import MetaVoiceRows
from torch_ref.cuda.prompts import PromptReader, PromptRows
from torch_ref.cuda.rows import usable
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.metavoice import decoder as plain
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.guidance import stacked
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs, MetaVoiceNumbers
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import columns

DRAWN_STEPS = 16  # whose ids are kept


class CapturedMetaVoice(CapturedDecoder):
    """The first stage for `texts` texts of at most `capacity` ids, on `rows` rows.

    end_of_text: as of the plain decoder.
    """

    steps = 4

    @torch.inference_mode()
    def __init__(self, network: FirstStage, *, texts: int, rows: int, capacity: int, end_of_text: int):
        self.plain = plain.MetaVoiceDecoder(network, end_of_text)
        self.network, self.host, self.last = network, Host(network.transformer.wpe), capacity - 1
        config, weight = network.config, network.transformer.wpe.weight
        shape = rows, config.num_attention_heads, capacity, config.head_dim
        at, layers = RowPositions(capacity), network.transformer.h
        self.caches = [RowCache(weight.new_zeros(shape), weight.new_zeros(shape), at) for _ in layers]
        self.speakers = weight.new_zeros(rows, 1, config.hidden_size)
        self.taken: dict[int, list[int]] = {}  # rows of each slot
        device = weight.device
        self.inputs: Tensor = torch.zeros(2, texts, dtype=torch.int64, device=device)
        self.state = MetaVoiceDraws(
            tokens=torch.zeros(rows, 1, dtype=torch.int64, device=device),
            positions=torch.zeros(rows, dtype=torch.int64, device=device),
            own=torch.full((texts, MOST_ROWS), -1, dtype=torch.int32, device=device),
            settings=torch.zeros(texts, len(columns(MetaVoiceNumbers)._fields), device=device),
            step=self.inputs[0],
        )
        self.noise = torch.full((1, texts, config.vocab_size), 0.5, device=device)
        self.drawn = torch.zeros(DRAWN_STEPS, texts, dtype=torch.int64, device=device)
        self.layers = MetaVoiceRows(network, self.caches, self.state.positions)
        self.reader = PromptReader(self.layers.stack, self.layers.memory, self.host)

    def prepare(self) -> None:
        self.reader.prepare(self._like)

    def join(self, texts: Mapping[int, MetaVoiceInputs]) -> Sequence[int]:
        """Read texts' ids but the last, into the lowest free rows."""
        given, state, to_device = [*texts.values()], self.state, self.host.to_device
        counts, sampling = [item.positions for item in given], given[0].sampling
        taken = {row for own in self.taken.values() for row in own}
        free = [row for row in range(len(state.tokens)) if row not in taken]
        rows = np.array(free[: len(given) * sampling.rows]).reshape(len(given), -1)  # (N, G)
        assert rows.shape[1] == sampling.rows, "their rows are free"
        voices = self.network.speakers(to_device(np.stack([item.vector for item in given])))[:, 0]
        voices = torch.stack((voices, torch.zeros_like(voices), voices)[: sampling.rows])  # (G, N, D)
        ids = [
            to_device(np.concatenate(item)[None]).long()
            for item in zip(*((item.tokens[:-1], item.tokens[-1:]) for item in given), strict=True)
        ]
        read, last = (stacked(token, sampling, self.plain.end_of_text) for token in ids)
        packed = Packed.of(counts)
        if packed.total:
            whose = to_device(np.repeat(np.arange(len(given)), counts))
            x = self.network.transformer.embed(read, voices[:, whose], to_device(packed.positions))
            self.reader(
                x.flatten(0, 1),
                [
                    PromptRows(copy * packed.total + span.start, count, own[copy])
                    for copy in range(sampling.rows)
                    for span, count, own in zip(packed.spans, counts, rows, strict=True)
                ],
            )
        wpe, slots = to_device(rows.T.ravel()), to_device(np.array([*texts]))
        state.tokens[wpe, 0], self.speakers[wpe, 0] = last.flatten(), voices.flatten(0, 1)
        state.positions[wpe] = to_device(np.tile(counts, sampling.rows))
        own = np.pad(rows, ((0, 0), (0, MOST_ROWS - sampling.rows)), constant_values=-1)
        state.own[slots] = to_device(own.astype(np.int32))
        state.settings[slots] = to_device(SAMPLER.table([item.sampling.numbers for item in given]))
        self.taken |= {slot: own.tolist() for slot, own in zip(texts, rows, strict=True)}
        return counts

    def leave(self, slot: int) -> None:
        del self.taken[slot]
        self.state.own[slot] = -1

    def run(self, slots: int) -> Tensor:
        """Draw the next ids, which the next step reads."""
        noise, ids = self.noise[0].log_().neg_().log_(), self.drawn.new_empty(self.drawn.shape[1])
        draw_ids(self.logits(), noise, self.state, ids, last=self.last, end_of_text=self.plain.end_of_text)
        return self.drawn.copy_(torch.cat((self.drawn[1:], ids[None])))

    def logits(self) -> Tensor:
        """Compute logits of all rows, (R, V) in the network's dtype."""
        transformer = self.network.transformer
        table, wpe = cast(nn.Embedding, transformer.wtes[0]).weight, transformer.wpe.weight
        wide = torch.float32 if table.dtype == torch.float16 else table.dtype
        x = table.new_empty(len(self.state.tokens), table.shape[1], dtype=wide)
        embed_rows(self.state, table, wpe, self.speakers, x)
        return self.layers(x)

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.drawn[DRAWN_STEPS - steps :]

    def compiling(self) -> list[Callable[[], object]]:
        return [lambda: self.reader.warm(self._like)]

    @property
    def _like(self) -> Tensor:
        """A row of the layers' input."""
        return self.speakers[0].float() if self.speakers.dtype == torch.float16 else self.speakers[0]


def make_slots(
    network: FirstStage, *, texts: int, rows: int, capacity: int, end_of_text: int
) -> RunningBatch:
    """Open a captured running batch where the kernels support the network, else a plain one."""
    weight, config = network.transformer.wpe.weight, network.config
    if not weight.is_cuda or config.bias or not usable(weight, config.head_dim):
        return plain.make_slots(network, texts=texts, capacity=capacity, end_of_text=end_of_text)
    captured = CapturedMetaVoice(network, texts=texts, rows=rows, capacity=capacity, end_of_text=end_of_text)
    return CapturedBatch(captured, texts=texts, capacity=capacity)
