"""MetaVoice's slots as one CUDA graph of kernels."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from torch_ref.cuda.capture import capture
from torch_ref.cuda.metavoice.draws import MetaVoiceDraws, draw_ids, embed_rows
from torch_ref.cuda.metavoice.rows import MetaVoiceRows
from torch_ref.cuda.rows import usable
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.slots import MetaVoiceSlots
from tts_core.metavoice.rows import MetaVoiceJoining
from tts_core.metavoice.sampling import SAMPLER, MetaVoiceNumbers
from tts_core.nn.sampling import columns


class MetaVoiceGraphSlots(MetaVoiceSlots):
    """Slots whose step is one launch: ids in, the network on all rows, the next ids out.

    The texts' rows, positions and settings are on the device. Keys and values stay where they are, and are
    allocated at once.
    """

    steps, ahead = 4, 1

    def __init__(self, network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int):
        super().__init__(network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)
        device = self.speakers.device
        self.cache = self.new_cache()
        self.rows = MetaVoiceDraws(
            tokens=self.tokens,
            positions=torch.zeros(rows, dtype=torch.int64, device=device),
            own=torch.full((texts, 3), -1, dtype=torch.int32, device=device),
            settings=torch.zeros(texts, len(columns(MetaVoiceNumbers)._fields), device=device),
            step=torch.full((texts,), -1, dtype=torch.int32, device=device),
        )
        self.noise = torch.zeros(texts, network.config.vocab_size, device=device)
        self.drawn = self.tokens.new_zeros(texts)
        self.layers = MetaVoiceRows(network, self.cache, self.rows.positions)
        with torch.inference_mode():
            # what the warm-up writes, at position 0, each text that joins writes anew
            self.graph, self.ids = capture(self._compute, device, again=lambda: None)

    @torch.inference_mode()
    def join(self, slot: int, text: MetaVoiceJoining) -> None:
        """Read a text's ids but the last and let it start with the next step; its slot must be free."""
        super().join(slot, text)
        own = np.full(3, -1, np.int32)
        own[: text.sampling.rows] = rows = self.plan.texts[slot].rows
        self.rows.own[slot] = self.host.to_device(own)
        self.rows.settings[slot] = self.host.to_device(SAMPLER.table([text.sampling.numbers])[0])
        self.rows.step[slot] = 0
        self.rows.positions[rows] = len(text.ids) - 1

    @torch.inference_mode()
    def leave(self, slot: int) -> None:
        """Free a slot and its rows."""
        self.plan.leave(slot)
        self.rows.own[slot] = self.rows.step[slot] = -1

    def step(self) -> Tensor:
        """Draw the next id of every text, which the next step reads. → (texts,)."""
        torch.log(self.waiting(), out=self.noise)
        self.graph.replay()
        return self.ids.clone()

    def logits(self) -> Tensor:
        """Compute logits of all rows, (R, V) in the network's dtype."""
        transformer = self.network.transformer
        table, places = cast(nn.Embedding, transformer.wtes[0]).weight, transformer.wpe.weight
        wide = torch.float32 if table.dtype == torch.float16 else table.dtype
        x = table.new_empty(len(self.tokens), table.shape[1], dtype=wide)
        embed_rows(self.rows, table, places, self.speakers, x)
        return self.layers(x)

    def _compute(self) -> Tensor:
        last = self.plan.capacity - 1
        draw_ids(self.logits(), self.noise, self.rows, self.drawn, last=last, end_of_text=self.end_of_text)
        return self.drawn


def make_slots(network: FirstStage, *, texts: int, rows: int, room: int, end_of_text: int) -> MetaVoiceSlots:
    """Build the fastest form of the slots for the network's device and shapes."""
    weight, config = network.transformer.wpe.weight, network.config
    captured = weight.is_cuda and not config.bias and usable(weight, config.head_dim)
    form = MetaVoiceGraphSlots if captured else MetaVoiceSlots
    return form(network, texts=texts, rows=rows, room=room, end_of_text=end_of_text)
