"""MARS5's autoregressive network in a running batch: the next id of each text.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.batch import RunningBatch
from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.steps.apart import sequences_apart
from mlx_port.steps.mars5.drawing import drawing
from mlx_port.steps.mars5.one_row import fused
from mlx_port.steps.spin import Spins
from tts_core.mars5.inputs import SAMPLER, Mars5Inputs
from tts_core.nn.packed import Packed, ring
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Mars5State(NamedTuple):
    """Of N texts.

    tokens: (N,) int32, the last ids.
    recent: (N, W) int32, a ring of the last ids; an empty place has 0, of text, which is never drawn.
    """

    tokens: mx.array
    recent: mx.array


class Mars5Decoder(BatchDecoder):
    """The autoregressive network for texts of at most `capacity` ids. lowest, end: ids of CodecVocabulary."""

    numbers, ahead = (1,), 1

    def __init__(self, network: CodecLM, *, capacity: int, lowest: int, end: int):
        self.network, self.window = network, network.config.sliding_window
        self.bounds = {"lowest": lowest, "end": end}
        self.host, self.rotary = Host(network.embed), network.positions(capacity)
        self.settings = TextSettings(SAMPLER, self.host)
        self.reserves = True  # diffusions would take the memory into which keys are to grow
        self._spins = Spins(self.rotary(0, capacity))

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
            hidden = network.ar(
                mx.concatenate(rows, axis=1), self.rotary(caches[0].length, packed.total), caches
            )
        for text, span in zip(texts, packed.spans, strict=True):
            state = Mars5State(mx.zeros(1, mx.int32), mx.zeros((1, text.window), mx.int32))
            slots = span if text.positions <= window else to_device(ring(span, window))
            keys = [cache.of(slots) for cache in caches]
            found.append(TextRead(state, keys, network.head(hidden[:, span.stop - 1])))
        return found

    def step(
        self, state: Mars5State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> mx.array:
        """Compute logits, (N, V) float32."""
        return fused(self.network).next_logits(state.tokens[:, None], self._spins(at.on_host), caches)

    def draw(
        self, made: mx.array, state: Mars5State, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> tuple[mx.array, Mars5State]:
        """Draw the next ids, (N,)."""
        slots, penalties, repeats = Mars5Inputs.steps(draws.texts)
        seen = state.recent if repeats.all() else mx.where(self.host.to_device(repeats), state.recent, 0)
        sampler, settings = self.settings.of(draws.settings)
        draw = drawing(sampler, made.shape[1], **self.bounds)
        ids, known = draw(made, seen, self.host.to_device(penalties), uniform, settings)
        recent = mx.put_along_axis(state.recent, self.host.to_device(slots), known[:, None], axis=1)
        return ids, Mars5State(known, recent)


def make_slots(network: CodecLM, *, texts: int, capacity: int, lowest: int, end: int) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` positions."""
    return RunningBatch(
        Mars5Decoder(network, capacity=capacity, lowest=lowest, end=end), texts=texts, capacity=capacity
    )
