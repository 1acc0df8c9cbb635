"""Slots for texts that decode in parallel: one step for all, which each text joins and leaves.

Rows of the batch are those of the texts in progress; their memory is copied when a text joins or leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.sampling import choose
from mlx_port.guard import marked
from mlx_port.layers.cache import CHUNK
from mlx_port.layers.row_cache import RowCache, RowPositions
from tts_core.dia2.sampling import Choice, Sampling
from tts_core.dia2.slots import Joining


@dataclass(eq=False)
class Text:
    """A text in progress. steps: that it has run."""

    joining: Joining
    steps: int = 0

    @property
    def rows(self) -> int:
        """Rows of the batch: the conditional one and, with guidance, the unconditional one after it."""
        return 1 + self.joining.sampling.is_guided

    @property
    def length(self) -> int:
        """Keys that it has."""
        return len(self.joining.before) + self.steps


class Slots:
    """Any number of slots; a text takes memory only while it is there."""

    def __init__(self, network: Dia2):
        self.network = network
        self.running: dict[int, Text] = {}  # by slot, in the order of their rows
        config = network.config
        stack, kind = config.transformer, network.transformer.text_embed.embedding.weight.dtype
        empty = 0, stack.num_key_value_heads, 0, stack.head_dim
        kind = network.transformer.compute or kind
        self.cache = [(mx.zeros(empty, kind), mx.zeros(empty, kind)) for _ in network.transformer.layers]
        self.last = mx.zeros((0, config.n_streams), mx.int32)  # codes of each text
        self.hidden, self.noise = mx.zeros(0), mx.zeros(0)
        self.nothing = mx.array([config.text_zero_id, config.text_pad_id])
        ids = mx.arange(config.audio_vocab_size)
        self.is_code = (ids != config.audio_pad_id) & (ids != config.audio_bos_id)
        self._place()

    def join(self, slot: int, text: Joining) -> None:
        """Read a text's prefix and let it begin with the next step; its slot must be free."""
        one, transformer = Text(text), self.network.transformer
        cache = transformer.new_cache()
        if len(text.before):
            tokens = mx.repeat(mx.array(text.before)[None], one.rows, axis=0)
            tokens[1:, :, :2] = self.nothing
            transformer(tokens, 0, cache)
        for index, (keys, values) in enumerate(self.cache):
            nothing = mx.zeros((one.rows, keys.shape[1], 0, keys.shape[3]), keys.dtype)
            read = cache[index].buffers or (nothing, nothing)
            fresh = [part[:, :, : one.length] for part in read]
            self.cache[index] = _joined(keys, fresh[0]), _joined(values, fresh[1])
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
        for index, (keys, values) in enumerate(self.cache):
            self.cache[index] = keys[kept][:, :, :length], values[kept][:, :, :length]
        self.last = self.last[others]
        self._place()

    def act(self, inputs: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Run a step of the transformer, and wait for the actions."""
        config, transformer = self.network.config, self.network.transformer
        nothing = np.zeros(2 + config.n_streams, np.int32)
        given = mx.array(np.stack([inputs.get(slot, nothing) for slot in self.running]))
        codes = mx.where(given[:, 2:] < 0, self.last, given[:, 2:])
        rows = mx.concatenate([given[:, :2], codes], axis=1)[mx.array(self.owner)]
        rows[:, :2] = mx.where(self.is_bare[:, None], self.nothing, rows[:, :2])
        texts = [*self.running.values()]
        lengths = np.array([text.length for text in texts], np.int32)
        seen = int(lengths.max()) + 1
        self._make_room(seen)
        at = RowPositions(self.cache[0][0].shape[2])
        at.move(mx.array(lengths[self.owner]), seen)
        places = np.array([text.joining.start + text.steps for text in texts], np.int32)
        cache = [RowCache(keys, values, at) for keys, values in self.cache]
        positions = mx.array(places[self.owner])[:, None, None]
        self.hidden = transformer(rows[:, None], positions, cache)[:, 0]
        self.cache = [(one.keys, one.values) for one in cache]
        self.noise = mx.array(np.stack([text.joining.uniform(text.steps, config) for text in texts]))
        drawn = self._choose(transformer.actions(self.hidden), 0, None)
        actions = np.array(drawn).tolist()
        return {slot: action for slot, action in zip(self.running, actions, strict=True) if slot in inputs}

    def draw(self, texts: Mapping[int, tuple[int, int]]) -> tuple[list[int], mx.array]:
        """Draw the step's codes; waits for nothing. Returns the slots, and their codes (N, Q)."""
        network, pad = self.network, self.network.config.text_pad_id
        said = np.array([texts.get(slot, (pad, pad)) for slot in self.running], np.int32)[self.owner]
        main, second, owner = mx.array(said[:, 0]), mx.array(said[:, 1]), mx.array(self.owner)
        logits, cache = network.transformer.codes(self.hidden), network.depformer.new_cache()
        found = [self._choose(logits, 1, self.is_code)]
        for stage in range(network.config.n_streams - 1):
            previous = mx.maximum(found[-1], 0)[owner]
            logits = network.depformer(stage, self.hidden, previous, (main, second), cache)
            found.append(self._choose(logits, stage + 2, None))
        codes = mx.stack(found, axis=1)
        self.last = mx.maximum(codes, 0)
        for slot in texts:
            self.running[slot].steps += 1
        slots = [slot for slot in self.running if slot in texts]
        places = [place for place, slot in enumerate(self.running) if slot in texts]
        codes = codes[mx.array(places)]
        mx.async_eval(codes)
        return slots, codes

    def read(self, drawn: tuple[list[int], mx.array]) -> dict[int, np.ndarray]:
        """Wait for codes. → (Q,) int32 by slot, -1 where logits were not all finite."""
        slots, codes = drawn
        return dict(zip(slots, np.array(codes), strict=True))

    def _choose(self, logits: mx.array, place: int, is_code: mx.array | None) -> mx.array:
        """Choose an id for each text, those of equal settings together. (R, V) → (N,).

        place: of its random numbers: 0 is the action.
        """
        cond, uncond = logits[self.first], logits[self.other]
        ids = mx.zeros(len(cond), mx.int32)
        for sampling, rows in self.groups:
            noise = self.noise[rows, place, : logits.shape[-1]]
            choice: Choice = sampling.audio if place else sampling.action
            ids[rows] = choose(cond[rows], uncond[rows], choice, noise, is_code).astype(mx.int32)
        return marked(ids[:, None], mx.concatenate([cond, uncond])[:, None])[:, 0]

    def _place(self) -> None:
        """Assign rows to texts. owner: text of each row.  is_bare: rows without text.  first, other: both
        rows of each text, the same one without guidance.  groups: texts by their settings.
        """
        texts = [*self.running.values()]
        counts = np.array([text.rows for text in texts], np.int32)
        first = np.cumsum(counts) - counts
        self.owner = np.repeat(np.arange(len(texts)), counts)
        self.first, self.other = mx.array(first), mx.array(first + counts - 1)
        bare = np.ones(len(self.owner), bool)
        bare[first] = False
        self.is_bare = mx.array(bare)
        groups: dict[Sampling, list[int]] = {}
        for place, text in enumerate(texts):
            groups.setdefault(text.joining.sampling, []).append(place)
        self.groups = [(sampling, mx.array(rows)) for sampling, rows in groups.items()]

    def _make_room(self, length: int) -> None:
        """Let the buffers of keys and values grow to hold so many of each row."""
        short = _chunks(length) - self.cache[0][0].shape[2]
        if short > 0:
            room = [(0, 0), (0, 0), (0, short), (0, 0)]
            self.cache = [(mx.pad(keys, room), mx.pad(values, room)) for keys, values in self.cache]


def _chunks(rows: int) -> int:
    return -(-rows // CHUNK) * CHUNK


def _joined(held: mx.array, rows: mx.array) -> mx.array:
    """Append rows of the batch. (R, K, T, E) and (1 or 2, K, S, E) → (R + 1 or 2, K, longer, E)."""
    longest = max(held.shape[2], rows.shape[2])
    return mx.concatenate(
        [mx.pad(each, [(0, 0), (0, 0), (0, longest - each.shape[2]), (0, 0)]) for each in (held, rows)]
    )
