"""MetaVoice's first stage captured: ids in, the network on all rows, the next ids out."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import CapturedBatch, CapturedDecoder
from torch_ref.cuda.metavoice.draws import MetaVoiceDraws, draw_ids, embed_rows
from torch_ref.cuda.metavoice.rows import MetaVoiceRows
from torch_ref.cuda.rows import usable
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.metavoice import decoder as plain
from torch_ref.metavoice.first_stage import FirstStage
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs, MetaVoiceNumbers
from tts_core.nn.sampling import columns

DRAWN_STEPS = 16  # whose ids are kept


class CapturedMetaVoice(CapturedDecoder):
    """The first stage for `texts` texts of at most `room` ids, on `rows` rows.

    end_of_text: as of the plain decoder.
    """

    steps = 4

    @torch.inference_mode()
    def __init__(self, network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int):
        self.plain = plain.MetaVoiceDecoder(network, end_of_text)
        self.network, self.host, self.last = network, Host(network.transformer.wpe), room - 1
        config, weight = network.config, network.transformer.wpe.weight
        shape = rows, config.num_attention_heads, room, config.head_dim
        at, layers = RowPositions(room), network.transformer.h
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

    def join(self, slot: int, text: MetaVoiceInputs) -> int:
        """Read a text's ids but the last, into the lowest free rows."""
        [read], count, state = self.plain.read([text]), text.positions, self.state
        taken = {row for own in self.taken.values() for row in own}
        rows = [row for row in range(len(state.tokens)) if row not in taken][: text.rows]
        assert len(rows) == text.rows, "its rows are free"
        self.taken[slot] = rows
        for cache, pair in zip(self.caches, read.keys, strict=True):
            for copy, row in enumerate(rows):
                cache.fill(row, *(each[copy, :, :count] for each in pair))
        state.tokens[rows, 0], self.speakers[rows, 0] = (each[0, : text.rows] for each in read.state)
        state.positions[rows] = count
        state.own[slot] = self.host.to_device(np.array([*rows, -1, -1][:MOST_ROWS], np.int32))
        state.settings[slot] = self.host.to_device(SAMPLER.table([text.sampling.numbers])[0])
        return count

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
        table, places = cast(nn.Embedding, transformer.wtes[0]).weight, transformer.wpe.weight
        wide = torch.float32 if table.dtype == torch.float16 else table.dtype
        x = table.new_empty(len(self.state.tokens), table.shape[1], dtype=wide)
        embed_rows(self.state, table, places, self.speakers, x)
        return self.layers(x)

    def ids(self, tick: int, steps: int) -> Tensor:
        return self.drawn[DRAWN_STEPS - steps :]

    def compiling(self) -> list[Callable[[], object]]:
        return []


def make_slots(network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int) -> RunningBatch:
    """Open a captured running batch where the kernels support the network, else a plain one."""
    weight, config = network.transformer.wpe.weight, network.config
    if not weight.is_cuda or config.bias or not usable(weight, config.head_dim):
        return plain.make_slots(network, texts=texts, room=room, end_of_text=end_of_text)
    captured = CapturedMetaVoice(network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)
    return CapturedBatch(captured, texts=texts, room=room)
