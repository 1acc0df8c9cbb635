"""MARS5's autoregressive network in a running batch: the next id of each text.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

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
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.sampling import draw_rows, occurrences
from tts_core.mars5.inputs import SAMPLER, Mars5Inputs, allowed_ids
from tts_core.nn.packed import Packed, ring
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Mars5State(NamedTuple):
    """Of N texts.

    tokens: (N,) int64, the last ids.
    recent: (N, W) int64, a ring of the last ids; an empty place has 0, of text, which is never drawn.
    """

    tokens: Tensor
    recent: Tensor


class Mars5Decoder(BatchDecoder):
    """The autoregressive network for texts of at most `capacity` ids. lowest, end: ids of CodecVocabulary."""

    numbers = (1,)

    def __init__(self, network: CodecLM, *, capacity: int, lowest: int, end: int):
        self.network, self.window = network, network.config.sliding_window
        self.host, self.rotary, self.end = Host(network.embed), network.positions(capacity), end
        self.settings = TextSettings(SAMPLER, self.host)
        self.allowed = self.host.to_device(allowed_ids(network.config.vocab_size, lowest))
        # on a GPU, diffusions would take the memory into which keys are to grow
        self.reserves = not network.embed.weight.is_cpu

    def read(self, texts: Sequence[Mars5Inputs]) -> list[TextRead]:
        """Read the speakers and the prompts. A speaker of several is read once."""
        network, to_device, found = self.network, self.host.to_device, list[TextRead]()
        voices = {text.codes.tobytes(): text.codes for text in texts}
        speakers = {key: network.speaker(to_device(codes.T[None])) for key, codes in voices.items()}
        packed, window = Packed.of(text.positions for text in texts), network.config.sliding_window
        caches = packed.caches(network.ar.layers, to_device, window)
        prompts = [(text.codes.tobytes(), to_device(text.prompt.tokens[None])) for text in texts]
        rows = [network.rows(speakers[key], ids) for key, ids in prompts]
        with sequences_apart(network, packed):
            hidden = network.ar(torch.cat(rows, dim=1), self.rotary(caches[0].length, packed.total), caches)
        for text, span in zip(texts, packed.spans, strict=True):
            state = Mars5State(
                torch.zeros(1, dtype=torch.int64, device=hidden.device),
                torch.zeros(1, text.window, dtype=torch.int64, device=hidden.device),
            )
            slots = span if text.positions <= window else to_device(ring(span, window))
            keys = [cache.of(slots) for cache in caches]
            found.append(TextRead(state, keys, network.head(hidden[:, span.stop - 1])))
        return found

    def step(
        self, state: Mars5State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> Tensor:
        """Compute logits, (N, V) float32."""
        return self.network.next_logits(
            self.network.embed(state.tokens[:, None]), self.rotary(at.start, 1), caches
        )

    def draw(
        self, made: Tensor, state: Mars5State, draws: Draws, uniform: Tensor, answers: np.ndarray
    ) -> tuple[Tensor, Mars5State]:
        """Draw the next ids, (N,)."""
        slots, penalty, repeats = map(self.host.to_device, Mars5Inputs.steps(draws.texts))
        counts = occurrences(torch.where(repeats, state.recent, 0), made.shape[1])
        sampler, settings = self.settings.of(draws.settings)
        inputs = {"allowed": self.allowed, "counts": counts, "penalty": penalty, "end": self.end}
        ids = draw_rows([made], sampler.named(settings, 2), uniform, sampler, **inputs)
        ids = marked(ids[:, None], made[:, None])[:, 0]
        known = ids.clamp(min=0)
        recent = state.recent.scatter(1, slots.long(), known[:, None])
        return ids, Mars5State(known, recent)


def make_slots(network: CodecLM, *, texts: int, capacity: int, lowest: int, end: int) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` positions."""
    return RunningBatch(
        Mars5Decoder(network, capacity=capacity, lowest=lowest, end=end), texts=texts, capacity=capacity
    )
