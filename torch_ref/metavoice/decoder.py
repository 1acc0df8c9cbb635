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
from torch_ref.limits.independent import sequences_apart
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.guidance import speaker_rows, stacked
from torch_ref.sampling import draw_rows
from tts_core.metavoice.config import END_OF_AUDIO
from tts_core.metavoice.inputs import MOST_ROWS, SAMPLER, MetaVoiceInputs
from tts_core.nn.packed import Packed
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

    def read(self, texts: Sequence[MetaVoiceInputs]) -> list[TextRead]:
        """Read the ids of texts but the last."""
        network, config, to_device = self.network, self.network.config, self.host.to_device
        packed, sampling = Packed.of(text.positions for text in texts), texts[0].sampling
        voices = [speaker_rows(network, to_device(text.vector[None]), sampling) for text in texts]
        caches = packed.caches(network.transformer.h, to_device)
        if packed.total:
            ids = to_device(np.concatenate([text.tokens[:-1] for text in texts])[None]).long()
            spoken = [voice.expand(-1, text.positions, -1) for voice, text in zip(voices, texts, strict=True)]
            with sequences_apart(network, packed):
                tokens = stacked(ids, sampling, self.end_of_text)
                network.transformer(tokens, torch.cat(spoken, dim=1), caches)
        empty = voices[0].new_zeros(texts[0].rows, config.num_attention_heads, 0, config.head_dim)
        states = map(self._state, texts, voices)
        return [*map(TextRead, states, packed.keys(caches, empty))]

    def step(
        self, state: MetaVoiceState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> Tensor:
        """Compute logits, (G, N, V) float32."""
        copies = len(at.on_host) // len(state.tokens)
        tokens, speakers = (array.transpose(0, 1)[:copies].flatten(0, 1)[:, None] for array in state)
        return self.network.next_logits(tokens, speakers, caches).unflatten(0, (copies, -1))

    def draw(
        self, made: Tensor, state: MetaVoiceState, draws: Draws, uniform: Tensor, answers: np.ndarray
    ) -> tuple[Tensor, MetaVoiceState]:
        """Draw the next ids, (N,)."""
        sampler, settings = self.settings.of([setting.numbers for setting in draws.settings])
        rows = self.host.to_device(np.array([[setting.rows] for setting in draws.settings]))
        # in place of rows that a text does not have
        logits = [torch.where(rows > copy, sound, made[0]) for copy, sound in enumerate(made)]
        ids = draw_rows(logits, sampler.named(settings, 2), uniform, sampler)
        ids = marked(ids[:, None], torch.cat(logits)[:, None])[:, 0]
        return ids, state._replace(tokens=self._tokens(ids.clamp(min=0)))

    def _state(self, text: MetaVoiceInputs, voice: Tensor) -> MetaVoiceState:
        """Return the first state of a text. voice: (G, 1, D), of its rows."""
        last, voiced = self.host.to_device(text.tokens[-1:]).long(), voice[:1, 0]
        none = torch.zeros_like(voice[:1, 0])
        return MetaVoiceState(self._tokens(last), torch.stack((voiced, none, voiced), dim=1))

    def _tokens(self, ids: Tensor) -> Tensor:
        """Return ids as the rows of guidance read them. (N,) → (N, 3)."""
        return torch.stack((ids, ids, torch.where(ids > END_OF_AUDIO, self.end_of_text, ids)), dim=1)


def make_slots(
    network: FirstStage, *, texts: int, capacity: int, end_of_text: int, rows: int = MOST_ROWS
) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` ids. rows: not used, it grows."""
    return RunningBatch(MetaVoiceDecoder(network, end_of_text), texts=texts, capacity=capacity)
