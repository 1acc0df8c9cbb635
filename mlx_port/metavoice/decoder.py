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
from mlx_port.steps.apart import sequences_apart
from mlx_port.steps.metavoice.drawing import drawing
from mlx_port.steps.metavoice.one_row import fused
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs
from tts_core.nn.packed import Packed
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

    def read(self, texts: Sequence[MetaVoiceInputs]) -> list[TextRead]:
        """Read the ids of texts but the last."""
        network, config, to_device = self.network, self.network.config, self.host.to_device
        packed, sampling = Packed.of(text.positions for text in texts), texts[0].sampling
        voices = [speaker_rows(network, to_device(text.vector[None]), sampling) for text in texts]
        caches = packed.caches(network.transformer.h, to_device)
        if packed.total:
            ids = to_device(np.concatenate([text.tokens[:-1] for text in texts])[None])
            spoken = [
                mx.repeat(voice, text.positions, axis=1) for voice, text in zip(voices, texts, strict=True)
            ]
            with sequences_apart(network, packed):
                tokens = stacked(ids, sampling, self.end_of_text)
                network.transformer(tokens, mx.concatenate(spoken, axis=1), caches)
        empty = mx.zeros((texts[0].rows, config.num_attention_heads, 0, config.head_dim), voices[0].dtype)
        states = map(self._state, texts, voices)
        return [*map(TextRead, states, packed.keys(caches, empty))]

    def step(
        self, state: MetaVoiceState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> mx.array:
        """Compute logits, (G, N, V) float32."""
        copies = len(at.on_host) // len(state.tokens)
        tokens, speakers = (mx.flatten(array.swapaxes(0, 1)[:copies], 0, 1)[:, None] for array in state)
        return mx.unflatten(fused(self.network).next_logits(tokens, speakers, caches), 0, (copies, -1))

    def draw(
        self, made: mx.array, state: MetaVoiceState, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> tuple[mx.array, MetaVoiceState]:
        """Draw the next ids, (N,)."""
        sampler, settings = self.settings.of([setting.numbers for setting in draws.settings])
        rows = self.host.to_device(np.array([[setting.rows] for setting in draws.settings]))
        ids = drawing(sampler)(made, settings, rows, uniform)
        return ids, state._replace(tokens=self._tokens(mx.maximum(ids, 0)))

    def _state(self, text: MetaVoiceInputs, voice: mx.array) -> MetaVoiceState:
        """Return the first state of a text. voice: (G, 1, D), of its rows."""
        last, voiced = self.host.to_device(text.tokens[-1:]), voice[:1, 0]
        none = mx.zeros_like(voice[:1, 0])
        return MetaVoiceState(self._tokens(last), mx.stack([voiced, none, voiced], axis=1))

    def _tokens(self, ids: mx.array) -> mx.array:
        """Return ids as the rows of guidance read them. (N,) → (N, 3)."""
        return mx.stack([ids, ids, mx.where(ids > END_OF_AUDIO, self.end_of_text, ids)], axis=1)


def make_slots(
    network: FirstStage, *, texts: int, capacity: int, end_of_text: int, rows: int = MOST_ROWS
) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` ids. rows: not used, it grows."""
    return RunningBatch(MetaVoiceDecoder(network, end_of_text), texts=texts, capacity=capacity)
