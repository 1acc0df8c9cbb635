"""Qwen3-TTS in a running batch: a frame of each text, read with the text that belongs to it, then the next.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0.
Differs from upstream, whose batch begins and ends together: a text has its own row, position, sampling and
random numbers; its codes are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.batch import RunningBatch
from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.qwen3.qwen3 import Qwen3, Talker
from mlx_port.steps.apart import sequences_apart
from mlx_port.steps.qwen3.fused import fused
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.host import Device
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import TextSettings
from tts_core.qwen3.layout import FIRST, OTHERS, Qwen3Inputs
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Qwen3State(NamedTuple):
    """Of N texts.

    frames: (N, Q) int32, the last ones, as drawn.
    seen: (N, V) bool, first codes that were drawn.
    """

    frames: mx.array
    seen: mx.array


class Qwen3Decoder(BatchDecoder):
    """The talker and its code predictor, in forms that are built once."""

    def __init__(self, network: Qwen3):
        self.network, self.talker, self.config = network, fused(network), network.config
        self.host = Host(network.talker.model.norm)
        self.numbers = (self.config.numbers,)
        self.settings = [TextSettings(sampler, self.host) for sampler in (FIRST, OTHERS)]

    def read(self, texts: Sequence[Qwen3Inputs]) -> list[TextRead]:
        talker, config = self.network.talker, self.config
        packed = Packed.of(text.positions for text in texts)
        caches = packed.caches(talker.model.layers, self.host.to_device)
        with sequences_apart(self.network, packed):
            hidden = talker(embedded(talker, self.host, texts), caches[0].length, caches)
        state = Qwen3State(
            mx.zeros((1, config.n_codebooks), mx.int32), mx.zeros((1, config.vocab_size), mx.bool_)
        )
        return [
            TextRead(state, [cache.of(span) for cache in caches], hidden[:, span.stop - 1])
            for span in packed.spans
        ]

    def step(
        self, state: Qwen3State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> mx.array:
        """Read the last frames, with ids of the text. → (N, D), normed."""
        x = self.talker.embed(state.frames, self.host.to_device(given)[:, 0])
        return self.talker.hidden(x, at.on_host, caches)

    def draw(
        self, made: mx.array, state: Qwen3State, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> tuple[mx.array, Qwen3State]:
        """Draw the next frames, whose first code may be the end of speech. made: (N, D).  → ids (N, Q)."""
        numbers = zip(*(setting.numbers for setting in draws.settings), strict=True)
        found = [setting.of([*own]) for setting, own in zip(self.settings, numbers, strict=True)]
        (first_codes, first_table), (others, table) = found
        steps = self.host.to_device(draws.steps[:, None])
        draw = self.talker.draws(first_codes, others).draw
        frames, first = draw(made, state.seen, steps, (first_table, table), uniform)
        seen = mx.put_along_axis(state.seen, first[:, None], mx.array(True), axis=1)
        return frames, Qwen3State(frames, seen)


def make_slots(network: Qwen3, *, texts: int, capacity: int) -> RunningBatch:
    """Open a running batch of at most `texts` texts of at most `capacity` positions."""
    return RunningBatch(Qwen3Decoder(network), texts=texts, capacity=capacity)


def embedded(talker: Talker, host: Device, texts: Sequence[Qwen3Inputs]) -> mx.array:
    """Embed what is read before the speech of texts. → (1, ΣT, D)."""
    layout, speakers, frames = Qwen3Inputs.packed(texts)
    voices = None if speakers is None else host.to_device(speakers)
    codes = None if frames is None else host.to_device(frames[None])
    return talker.embed_layout(layout, voices, codes)


def fault(network: Qwen3, text: Qwen3Inputs, frames: np.ndarray) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text again.

    frames: drawn before the logits that are not finite, (Q, T).
    """
    talker, host = network.talker, Host(network.talker.model.codec_embedding)
    with watched(network) as found:
        x, cache = embedded(talker, host, [text]), talker.new_cache()
        hidden = talker(x, 0, cache)
        if frames.shape[1]:
            read = talker.embed_text(host.to_device(text.read_with(frames.shape[1])))
            spoken = talker.embed_frames(host.to_device(frames[None]))
            hidden = talker(spoken + read[None], x.shape[1], cache)
        talker.logits(hidden[:, -1])
    row = text.positions + frames.shape[1]
    return NotFiniteError(next(iter(found), None), host.dtype, text=1, row=row)
