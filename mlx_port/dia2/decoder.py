"""Dia2 in a running batch: the transformer and the actions, then the codes of each text, stage by stage.

Codes are submitted with the transformer where they do not depend on the new text, so that the device has work
while the host moves the state machines on; they stay on the device for the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.batch import RunningBatch
from mlx_port.dia2.dia2 import Dia2
from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.layers.row_cache import RowCache, RowPositions
from mlx_port.steps.apart import sequences_apart
from mlx_port.steps.dia2.drawing import Dia2Drawing, Dia2Samplers, Dia2Settings
from mlx_port.steps.dia2.fused import fused
from tts_core.dia2.inputs import FIRST_STREAM, SAMPLER, Dia2Inputs, noise_shape
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.packed import Packed
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class Dia2State(NamedTuple):
    """codes: (N, Q), of the last step of each text."""

    codes: mx.array


class Dia2Decoder(BatchDecoder):
    """Both networks. Rows are the conditional ones of all texts, then the unconditional ones."""

    ahead = 1  # the next step acts before the codes of the last one are read
    is_exact = True

    def __init__(self, network: Dia2):
        self.network, self.host = network, Host(network.transformer.norm)
        config = network.config
        self.numbers, self.reads_answers = noise_shape(config), config.depformer_has_text
        self.empty = mx.array([config.text_zero_id, config.text_pad_id])
        self.fused = fused(network)
        self.drawings: dict[Dia2Samplers, Dia2Drawing] = {}
        self.settings = [TextSettings(item, self.host) for item in (SAMPLER, FIRST_STREAM, SAMPLER)]

    def read(self, texts: Sequence[Dia2Inputs]) -> list[TextRead]:
        """Read the steps of prefixes."""
        transformer, config, rows = self.network.transformer, self.network.config, texts[0].rows
        packed, stack = Packed.of(text.positions for text in texts), config.transformer
        caches = packed.caches(transformer.layers, self.host.to_device)
        if packed.total:
            before = np.concatenate([text.before for text in texts if text.positions])
            tokens = mx.repeat(self.host.to_device(before)[None], rows, axis=0)
            tokens[1:, :, :2] = self.empty
            with sequences_apart(transformer, packed):
                transformer(tokens, caches[0].length, caches)
        empty = mx.zeros((rows, stack.num_key_value_heads, 0, stack.head_dim), self.fused.kind)
        state = Dia2State(mx.zeros((1, config.n_streams), mx.int32))
        return [TextRead(state, keys) for keys in packed.keys(caches, empty)]

    def step(
        self, state: Dia2State, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> mx.array:
        """Run the transformer. → (R, D) after the last norm."""
        copies, texts = len(at.on_host) // len(given), len(given)
        angles, host = np.tile(given[:, 0], copies), np.tile(given[:, 1:], (copies, 1))
        host[texts:, :2] = self.network.config.text_zero_id, self.network.config.text_pad_id
        tokens = self.host.to_device(host)
        if (host < 0).any():
            codes = mx.broadcast_to(state.codes[None], (copies, *state.codes.shape)).flatten(0, 1)
            tokens = mx.where(tokens < 0, mx.pad(codes, [(0, 0), (2, 0)]), tokens)
        return self.fused.hidden(tokens, angles, at.on_host, caches, texts=texts)

    def act(self, made: mx.array, state: Dia2State, draws: Draws, uniform: mx.array) -> mx.array:
        """Choose an action for each text. → (N,), -1 where logits were not all finite."""
        drawing, settings = self._drawing(draws)
        return drawing.action(made, uniform, settings)

    def draw(
        self, made: mx.array, state: Dia2State, draws: Draws, uniform: mx.array, answers: np.ndarray
    ) -> tuple[mx.array, Dia2State]:
        """Choose the codes. answers: (N, 2), the new ids of both text streams. → (N, Q)."""
        drawing, settings = self._drawing(draws)
        codes = drawing.codes(made, uniform, self.host.to_device(answers), settings)
        return codes, Dia2State(mx.maximum(codes, 0))

    def _drawing(self, draws: Draws) -> tuple[Dia2Drawing, Dia2Settings]:
        """Return draws for these texts, compiled once for their samplers, and settings."""
        actions, codes = ([setting.numbers[which] for setting in draws.settings] for which in range(2))
        action, first, others = (
            setting.of(numbers)
            for setting, numbers in zip(self.settings, (actions, codes, codes), strict=True)
        )
        samplers = Dia2Samplers(action[0], first[0], others[0])
        if samplers not in self.drawings:
            self.drawings[samplers] = Dia2Drawing(self.fused, samplers)
        guided = self.host.to_device(np.array([[setting.is_guided] for setting in draws.settings]))
        return self.drawings[samplers], Dia2Settings(action[1], others[1], guided)


def make_slots(network: Dia2, *, texts: int, capacity: int, **bounds: bool) -> RunningBatch:
    """Open a running batch of at most `texts` texts that read at most `capacity` steps."""
    return RunningBatch(Dia2Decoder(network), texts=texts, capacity=capacity)


def fault(network: Dia2, tokens: mx.array, text: tuple[int, int]) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's steps again.

    tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
    """
    transformer, depformer = network.transformer, network.depformer
    dtype = str(transformer.text_embed.embedding.weight.dtype).removeprefix("mlx.core.")
    with watched(network) as found:
        hidden = transformer(tokens[None], 0, transformer.new_cache())[:, -1]
        transformer.actions(hidden)
        previous = mx.minimum(transformer.codes(hidden).argmax(axis=-1), depformer.codebook_size - 1)
        main, second = (mx.array([part]) for part in text)
        cache = depformer.new_cache()
        for stage in range(len(depformer.stage_sets)):
            previous = depformer(stage, hidden, previous, (main, second), cache).argmax(axis=-1)
    return NotFiniteError(next(iter(found), None), dtype, text=1, row=tokens.shape[0])
