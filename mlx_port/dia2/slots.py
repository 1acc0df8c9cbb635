"""Slots for texts that decode in parallel: one step for all, which each text joins and leaves.

Rows of the batch are those of the texts in progress; their memory is copied when a text joins or leaves. A
step's codes are submitted with its transformer where they do not depend on the new text, so that the device
has work while the host moves the state machines on; codes stay on the device for the next step.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import numpy as np

from mlx_port.dia2.dia2 import Dia2
from mlx_port.kernels.noise import trial, uniform
from mlx_port.kernels.source import passes
from mlx_port.layers.cache import CHUNK
from mlx_port.steps.dia2.drawing import Dia2Drawing
from mlx_port.steps.dia2.fused import fused
from tts_core.dia2.sampling import Dia2Sampling
from tts_core.dia2.slots import Dia2Joining, Dia2Text, noise_shape
from tts_core.nn.noise import HostNoise

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed
FORMS_KEPT = 16  # compiled draws, one for each mixture of settings


class Dia2Slots:
    """Any number of slots; a text takes memory only while it is there."""

    def __init__(self, network: Dia2):
        self.network, self.fused, self.ticks = network, fused(network), 0
        self.running: dict[int, Dia2Text] = {}  # by slot, in the order of their rows
        config = network.config
        empty = 0, config.transformer.num_key_value_heads, 0, config.transformer.head_dim
        kind = self.fused.kind
        self.cache = [[mx.zeros(empty, kind), mx.zeros(empty, kind)] for _ in network.transformer.layers]
        self.last = mx.zeros((0, config.n_streams), mx.int32)  # codes of each text
        self.codes, self.hidden, self.noise = self.last, mx.zeros(0), mx.zeros(0)
        self.nothing = mx.array([config.text_zero_id, config.text_pad_id])
        self.drawings: dict[tuple[Dia2Sampling, ...], Dia2Drawing] = {}
        self._place()

    def join(self, slot: int, text: Dia2Joining) -> None:
        """Read a text's prefix and let it begin with the next step; its slot must be free."""
        one, transformer = Dia2Text(text), self.network.transformer
        cache = transformer.new_cache()
        if len(text.before):
            tokens = mx.repeat(mx.array(text.before)[None], one.rows, axis=0)
            tokens[1:, :, :2] = self.nothing
            transformer(tokens, 0, cache)
        for held, read in zip(self.cache, cache, strict=True):
            nothing = mx.zeros((one.rows, held[0].shape[1], 0, held[0].shape[3]), held[0].dtype)
            fresh = (part[:, :, : one.length] for part in read.buffers or (nothing, nothing))
            held[:] = (_joined(each, new) for each, new in zip(held, fresh, strict=True))
            read.buffers = None
            mx.eval(held)
        self.last = mx.concatenate([self.last, mx.zeros((1, self.last.shape[1]), mx.int32)])
        self.running[slot] = one
        self._place()

    def leave(self, slot: int) -> None:
        """Free a slot. Unknown ones do nothing."""
        if slot not in self.running:
            return
        place = [*self.running].index(slot)
        kept = mx.array(np.flatnonzero(self.owner != place))
        others = mx.array(np.delete(np.arange(len(self.last)), place))
        del self.running[slot]
        length = _chunks(max((text.length for text in self.running.values()), default=0))
        for held in self.cache:
            held[:] = (each[kept][:, :, :length] for each in held)
            mx.eval(held)
        self.last = self.last[others]
        self._place()

    def act(self, inputs: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Run a step of the transformer, and wait for the actions."""
        actions = np.array(self._step(inputs)).tolist()
        return {slot: action for slot, action in zip(self.running, actions, strict=True) if slot in inputs}

    def draw(self, texts: Mapping[int, tuple[int, int]]) -> tuple[list[int], mx.array]:
        """Draw the step's codes; waits for nothing. Returns the slots, and the codes of all texts (N, Q)."""
        if self.network.config.depformer_has_text:
            pad = self.network.config.text_pad_id
            self._draw(mx.array(np.array([texts.get(slot, (pad, pad)) for slot in self.running], np.int32)))
        self.last = self.codes
        for slot in texts:
            self.running[slot].steps += 1
        self.ticks += 1
        if self.ticks % STEPS_KEPT == 0:
            mx.clear_cache()
        return [slot if slot in texts else -1 for slot in self.running], self.codes

    def read(self, drawn: tuple[list[int], mx.array]) -> dict[int, np.ndarray]:
        """Wait for codes. → (Q,) int32 by slot, -1 where logits were not all finite."""
        slots, codes = drawn
        return {slot: row for slot, row in zip(slots, np.array(codes), strict=True) if slot >= 0}

    def _step(self, inputs: Mapping[int, np.ndarray]) -> mx.array:
        """Submit a step, with its codes if they do not depend on the new text. → actions (N,)."""
        config, texts = self.network.config, [*self.running.values()]
        nothing = np.zeros(2 + config.n_streams, np.int32)
        given = np.stack([inputs.get(slot, nothing) for slot in self.running])[self.owner]
        given[self.is_bare, :2] = config.text_zero_id, config.text_pad_id
        lengths = np.array([text.length for text in texts], np.int32)[self.owner]
        places = np.array([text.joining.start + text.steps for text in texts], np.int32)[self.owner]
        self._make_room(int(lengths.max()) + 1)
        self.hidden = self.fused.hidden(self._tokens(given), places, lengths, self.cache)
        self.noise = self._uniform(texts)
        drawn = self.drawing.action(self.hidden, self.noise)
        mx.async_eval(drawn, self.cache)
        if not config.depformer_has_text:
            self._draw(mx.zeros((len(texts), 2), mx.int32))
        return drawn

    def _draw(self, text: mx.array) -> None:
        self.codes = self.drawing.codes(self.hidden, self.noise, text)
        mx.async_eval(self.codes)

    def _tokens(self, given: np.ndarray) -> mx.array:
        """Put the last codes in place of those that the host does not know. (R, 2 + Q)."""
        tokens = mx.array(given)
        if (given >= 0).all():
            return tokens
        last = mx.pad(mx.maximum(self.last, 0), [(0, 0), (2, 0)])[mx.array(self.owner)]
        return mx.where(tokens < 0, last, tokens)

    def _uniform(self, texts: list[Dia2Text]) -> mx.array:
        """Draw the random numbers of a step. (N, 1 + Q, ids)."""
        config, noise = self.network.config, [text.joining.noise for text in texts]
        seeds = [one.seed for one in noise if isinstance(one, HostNoise)]
        if len(seeds) == len(noise) and passes(trial):
            return uniform(seeds, [text.steps for text in texts], noise_shape(config))
        return mx.array(np.stack([text.joining.uniform(text.steps, config) for text in texts]))

    def _place(self) -> None:
        """Assign rows to texts. owner: text of each row.  is_bare: rows without text."""
        texts = [*self.running.values()]
        counts = [text.rows for text in texts]
        self.owner = np.repeat(np.arange(len(texts)), counts)
        self.is_bare = np.zeros(len(self.owner), bool)
        self.is_bare[1:] = self.owner[1:] == self.owner[:-1]
        settings = tuple(text.joining.sampling for text in texts)
        if texts and settings not in self.drawings:
            if len(self.drawings) == FORMS_KEPT:
                del self.drawings[next(iter(self.drawings))]
            self.drawings[settings] = Dia2Drawing(self.fused, settings)
        if texts:
            self.drawing = self.drawings[settings]

    def _make_room(self, length: int) -> None:
        """Let the buffers of keys and values grow to this many of each row."""
        short = _chunks(length) - self.cache[0][0].shape[2]
        if short > 0:
            for held in self.cache:
                held[:] = (mx.pad(each, [(0, 0), (0, 0), (0, short), (0, 0)]) for each in held)
                mx.eval(held)


def _chunks(rows: int) -> int:
    return -(-rows // CHUNK) * CHUNK


def _joined(held: mx.array, rows: mx.array) -> mx.array:
    """Append rows of the batch. (R, K, T, E) and (1 or 2, K, S, E) → (R + 1 or 2, K, longer, E)."""
    longest = max(held.shape[2], rows.shape[2])
    return mx.concatenate(
        [mx.pad(each, [(0, 0), (0, 0), (0, longest - each.shape[2]), (0, 0)]) for each in (held, rows)]
    )
