"""MetaVoice's first stage in a running batch: the next id of each text, from its rows of guidance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.batch import RunningBatch
from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.guidance import speaker_rows, stacked
from mlx_port.steps.metavoice.drawing import drawing
from mlx_port.steps.metavoice.one_row import fused
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class MetaVoiceState(NamedTuple):
    """Of N texts, for all rows of guidance. tokens: (N, 3) int32, the next ids.  speakers: (N, 3, D)."""

    tokens: mx.array
    speakers: mx.array


class MetaVoiceDecoder(BatchDecoder):
    """The first stage. end_of_text: the id that replaces text in rows without it."""

    ahead = 1

    def __init__(self, network: FirstStage, end_of_text: int):
        self.network, self.end_of_text = network, end_of_text
        self.host = Host(network.transformer.wpe)
        self.numbers, self.settings = (network.config.vocab_size,), TextSettings(SAMPLER, self.host)

    def read(self, text: MetaVoiceInputs) -> TextRead:
        """Read a text's ids but the last."""
        network, config, before = self.network, self.network.config, text.positions
        ids = self.host.to_device(text.tokens[None])
        voice = self.host.to_device(text.vector[None])
        tokens = stacked(ids, text.sampling, self.end_of_text)
        cache, speakers = network.new_cache(before), speaker_rows(network, voice, text.sampling)
        if before:
            network.transformer(tokens[:, :before], speakers, cache)
        voiced, none = speakers[:1, 0], mx.zeros_like(speakers[:1, 0])
        state = MetaVoiceState(self._tokens(ids[0, before:]), mx.stack([voiced, none, voiced], axis=1))
        empty = mx.zeros((text.rows, config.num_attention_heads, 0, config.head_dim), none.dtype)
        return TextRead(state, [held.buffers or (empty, empty) for held in cache])

    def step(
        self, state: MetaVoiceState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> mx.array:
        """Compute logits, (G, N, V) float32."""
        copies = len(at.places) // len(state.tokens)
        tokens, speakers = (mx.flatten(each.swapaxes(0, 1)[:copies], 0, 1)[:, None] for each in state)
        return mx.unflatten(fused(self.network).next_logits(tokens, speakers, caches), 0, (copies, -1))

    def draw(
        self, made: mx.array, state: MetaVoiceState, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> tuple[mx.array, MetaVoiceState]:
        """Draw the next ids, (N,)."""
        sampler, settings = self.settings.of([one.numbers for one in draws.settings])
        rows = self.host.to_device(np.array([[one.rows] for one in draws.settings]))
        ids = drawing(sampler)(made, settings, rows, uniform)
        return ids, state._replace(tokens=self._tokens(mx.maximum(ids, 0)))

    def _tokens(self, ids: mx.array) -> mx.array:
        """Return ids as the rows of guidance read them. (N,) → (N, 3)."""
        return mx.stack([ids, ids, mx.where(ids > END_OF_AUDIO, self.end_of_text, ids)], axis=1)


def make_slots(
    network: FirstStage, *, texts: int, room: int, end_of_text: int, rows: int = MOST_ROWS
) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `room` ids. rows: not used, it grows."""
    return RunningBatch(MetaVoiceDecoder(network, end_of_text), texts=texts, room=room)
