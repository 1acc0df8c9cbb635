"""MetaVoice's first stage in a running batch: the next id of each text, from its rows of guidance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.guard import marked
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.guidance import speaker_rows, stacked
from torch_ref.sampling import draw_rows
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class MetaVoiceState(NamedTuple):
    """Of N texts, for all rows of guidance. tokens: (N, 3) int64, the next ids.  speakers: (N, 3, D)."""

    tokens: Tensor
    speakers: Tensor


class MetaVoiceDecoder(BatchDecoder):
    """The first stage. end_of_text: the id that replaces text in rows without it."""

    def __init__(self, network: FirstStage, end_of_text: int):
        self.network, self.end_of_text = network, end_of_text
        self.host = Host(network.transformer.wpe)
        self.numbers, self.settings = (network.config.vocab_size,), TextSettings(SAMPLER, self.host)

    def read(self, text: MetaVoiceInputs) -> TextRead:
        """Read a text's ids but the last."""
        network, config, before = self.network, self.network.config, text.positions
        ids = self.host.to_device(text.tokens[None]).long()
        voice = self.host.to_device(text.vector[None])
        tokens = stacked(ids, text.sampling, self.end_of_text)
        cache, speakers = network.new_cache(before), speaker_rows(network, voice, text.sampling)
        if before:
            network.transformer(tokens[:, :before], speakers, cache)
        voiced, none = speakers[:1, 0], torch.zeros_like(speakers[:1, 0])
        state = MetaVoiceState(self._tokens(ids[0, before:]), torch.stack((voiced, none, voiced), dim=1))
        empty = none.new_zeros(text.rows, config.num_attention_heads, 0, config.head_dim)
        return TextRead(state, [held.buffers or (empty, empty) for held in cache])

    def step(
        self, state: MetaVoiceState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> Tensor:
        """Compute logits, (G, N, V) float32."""
        copies = len(at.places) // len(state.tokens)
        tokens, speakers = (each.transpose(0, 1)[:copies].flatten(0, 1)[:, None] for each in state)
        return self.network.next_logits(tokens, speakers, caches).unflatten(0, (copies, -1))

    def draw(
        self, made: Tensor, state: MetaVoiceState, draws: Draws, uniform: Tensor, answers: np.ndarray
    ) -> tuple[Tensor, MetaVoiceState]:
        """Draw the next ids, (N,)."""
        sampler, settings = self.settings.of([one.numbers for one in draws.settings])
        rows = self.host.to_device(np.array([[one.rows] for one in draws.settings]))
        # in place of rows that a text does not have
        logits = [torch.where(rows > copy, each, made[0]) for copy, each in enumerate(made)]
        ids = draw_rows(logits, sampler.named(settings, 2), uniform, sampler)
        ids = marked(ids[:, None], torch.cat(logits)[:, None])[:, 0]
        return ids, state._replace(tokens=self._tokens(ids.clamp(min=0)))

    def _tokens(self, ids: Tensor) -> Tensor:
        """Return ids as the rows of guidance read them. (N,) → (N, 3)."""
        return torch.stack((ids, ids, torch.where(ids > END_OF_AUDIO, self.end_of_text, ids)), dim=1)


def make_slots(
    network: FirstStage, *, texts: int, room: int, end_of_text: int, rows: int = MOST_ROWS
) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `room` ids. rows: not used, it grows."""
    return RunningBatch(MetaVoiceDecoder(network, end_of_text), texts=texts, room=room)
