"""Slots for texts that share the autoregressive network's steps: each joins and leaves between two of them.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from mlx_port.host import Host
from mlx_port.layers.row_cache import FirstRows, RowCache, RowPositions
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.sampling import draw_ids
from mlx_port.reading import Reading, begin_read, finish_read
from mlx_port.steps.chain import chain
from mlx_port.steps.mars5.one_row import fused
from mlx_port.steps.spin import Spins
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.rows import Inputs, Mars5BatchRows, Mars5Group, Mars5Joining
from tts_core.mars5.sampling import sampling_key

STEPS_KEPT = 256  # between two times that MLX's unused memory is freed
Drawing = Callable[..., tuple[mx.array, mx.array]]


class Mars5Slots:
    """`texts` slots, each a row of the network with `room` positions for speaker and ids.

    Several rows are allocated at once; a single one only while a text is in it.
    lowest, end: ids of CodecVocabulary.
    """

    steps, ahead = 1, 1  # of a launch, and launches before one is read, that keep the device busy
    can_step = True  # none of its texts waits

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        self.network, self.lowest, self.end = network, lowest, end
        self.host = Host(network.embed)
        self.plan = Mars5BatchRows(texts, room)
        self.at = RowPositions(min(network.config.sliding_window, room))
        self.cache = self._new_cache() if texts > 1 else []
        self.one_row, self.rotary = fused(network), network.positions(room)
        self.spins = Spins(self.rotary(0, room))
        self.tokens = mx.zeros((texts, 1), mx.int32)
        # last ids of each text, a ring; the vocabulary's size is an empty place
        self.recent = self._nothing(1)
        self.first: dict[int, mx.array] = {}  # by slot: (1, V), logits of texts that have drawn no id
        self.count = 0
        self._chained: tuple[tuple[float, ...], Drawing] | None = None

    def _new_cache(self) -> list[RowCache]:
        """Allocate the rows of every layer."""
        config, dtype = self.network.config, self.network.embed.weight.dtype
        buffer = self.plan.slots, config.num_attention_heads, self.at.capacity, config.head_dim
        layers = self.network.ar.layers
        return [RowCache(mx.zeros(buffer, dtype), mx.zeros(buffer, dtype), self.at) for _ in layers]

    def join(self, slot: int, text: Mars5Joining) -> None:
        """Read a text's prompt and let it draw with the next step; its slot must be free."""
        self.cache = self.cache or self._new_cache()
        network, prompt = self.network, self.host.to_device(text.prompt.tokens[None])
        rows = network.rows(network.speaker(self.host.to_device(text.codes.T[None])), prompt)
        cache = [FirstRows(network.config.sliding_window, layer, slot) for layer in self.cache]
        self.first[slot] = network.next_logits(rows, self.rotary(0, rows.shape[1]), cache)
        if text.window > self.recent.shape[1]:
            wider = self._nothing(text.window)
            wider[:, : self.recent.shape[1]] = self.recent
            self.recent = wider
        self.recent[slot] = network.config.vocab_size
        self.plan.join(slot, text)

    def leave(self, slot: int) -> None:
        """Free a slot."""
        self.plan.leave(slot)
        self.first.pop(slot, None)
        if self.plan.slots == 1:
            self.cache = []

    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        groups = self.plan.groups()
        return begin_read(mx.stack([self._step(groups) for _ in range(steps)]))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def logits(self, positions: np.ndarray) -> mx.array:
        """Compute logits of the rows in use, (R, V) float32. positions: (R,) int32."""
        place = int(positions.max())
        if len(positions) == 1:
            self.at.level(place)
        else:
            self.at.move(self.host.to_device(positions), min(place + 1, self.at.capacity))
        return self.one_row.next_logits(self.tokens[: len(positions)], self.spins(positions), self.cache)

    def _step(self, groups: Sequence[Mars5Group]) -> mx.array:
        """Draw the next id of every text. → (texts,) int32."""
        inputs, texts = self.plan.step(), self.plan.slots
        rows = len(inputs.positions)
        ids, known = self._draw(self._next_logits(inputs.positions), inputs, groups)
        if rows == 1:
            place = int(inputs.recent[0])
            self.recent[:1, place : place + 1] = known
        else:
            self.recent[mx.arange(rows), self.host.to_device(inputs.recent)] = known[:, 0]
        if rows == texts:
            self.tokens = known
        else:
            self.tokens[:rows] = known
        self.count += 1
        if self.count % STEPS_KEPT == 0:
            mx.clear_cache()
        return ids if rows == texts else mx.concatenate([ids, mx.zeros(texts - rows, mx.int32)])

    def _draw(
        self, logits: mx.array, inputs: Inputs, groups: Sequence[Mars5Group]
    ) -> tuple[mx.array, mx.array]:
        """Draw an id from each row that is a text's. (R, V) → (R,), and the next step's (R, 1)."""
        seen = self.recent[: len(logits)]
        penalty, uniform = map(self.host.to_device, (inputs.penalty[:, None], inputs.uniform[:, None]))
        if not inputs.repeats.all():
            repeats = self.host.to_device(inputs.repeats)
            seen = mx.where(repeats[:, None], seen, self.network.config.vocab_size)
        if len(groups[0].slots) == len(logits):
            return self._drawing(groups[0].options)(logits, seen, penalty, uniform)
        ids = mx.zeros(len(logits), mx.int32)
        for options, slots in groups:
            own = self.host.to_device(slots)
            ids[own] = draw_ids(
                logits[own], seen[own], penalty[own], uniform[own], options, lowest=self.lowest, end=self.end
            )
        return ids, mx.maximum(ids, 0)[:, None]

    def _drawing(self, options: Mars5Options) -> Drawing:
        """Return the compiled draw for texts of one sampling."""
        key = sampling_key(options)
        if self._chained is None or self._chained[0] != key:

            def drawn(
                logits: mx.array, seen: mx.array, penalty: mx.array, uniform: mx.array
            ) -> tuple[mx.array, mx.array]:
                ids = draw_ids(logits, seen, penalty, uniform, options, lowest=self.lowest, end=self.end)
                return ids, mx.maximum(ids, 0)[:, None]

            self._chained = key, chain(drawn)
        return self._chained[1]

    def _next_logits(self, positions: np.ndarray) -> mx.array:
        """Compute logits of the rows in use; those of a prompt are known. positions: (R,) → (R, V)."""
        known, rows = self.first, len(positions)
        if len(known) < len(self.plan.texts):
            logits = self.logits(positions)
        else:
            logits = mx.zeros((rows, self.network.config.vocab_size))
        for slot, own in known.items():
            logits[slot] = own[0]
        known.clear()
        return logits

    def _nothing(self, window: int) -> mx.array:
        """Build empty places for `window` ids of each text."""
        shape, vocabulary = (self.plan.slots, window), self.network.config.vocab_size
        return mx.full(shape, vocabulary, mx.int32)
