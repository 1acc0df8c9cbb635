"""Slots for texts that share the autoregressive network's steps: each joins and leaves between two of them.

Upstream: Camb-ai/MARS5-TTS@84697c8 (AGPL-3.0); written from a description, none of its code was used.
Differs from upstream, which runs one text: a text has its own row, position, speaker, sampling and random
numbers; its ids are those that it has by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.host import Host
from torch_ref.layers.cache import CHUNK
from torch_ref.layers.row_cache import FirstRows, RowCache, RowPositions
from torch_ref.limits.independent import independent_rows
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.sampling import draw_ids
from torch_ref.reading import Reading, begin_read, finish_read
from tts_core.mars5.rows import Inputs, Mars5BatchRows, Mars5Group, Mars5Joining


class Mars5Slots:
    """`texts` slots, each a row of the network with `room` positions for speaker and ids.

    On a CPU keys and values grow with the longest text, and are freed when the last one leaves. Elsewhere
    they are allocated at once, a single row's only while a text is in it.
    lowest, end: ids of CodecVocabulary.
    """

    steps, ahead = 1, 0  # of a launch, and launches before one is read, that keep the device busy
    can_step = True  # none of its texts waits

    def __init__(self, network: CodecLM, *, texts: int, room: int, lowest: int, end: int):
        self.network, self.lowest, self.end = network, lowest, end
        self.host = Host(network.embed)
        self.plan = Mars5BatchRows(texts, room)
        self.at = RowPositions(min(network.config.sliding_window, room))
        self.cache: list[RowCache] = []
        # on a GPU, diffusions would take the memory into which keys are to grow
        self.grows = network.embed.weight.is_cpu
        self.rotary = network.positions(room)
        self.tokens = torch.zeros(texts, 1, dtype=torch.int64, device=network.embed.weight.device)
        # last ids of each text, a ring; the vocabulary's size is an empty place
        self.recent = self._nothing(1)
        self.first: dict[int, Tensor] = {}  # by slot: (1, V), logits of texts that have drawn no id
        if texts > 1 and not self.grows:
            self._reserve(room)

    def _reserve(self, positions: int) -> None:
        """Let every layer have keys and values of this many positions of each text; those there are kept."""
        wanted = -(-positions // CHUNK) * CHUNK if self.grows else self.at.capacity
        config, weight = self.network.config, self.network.embed.weight
        if not self.cache:
            empty = weight.new_zeros(self.plan.slots, config.num_attention_heads, 0, config.head_dim)
            self.cache = [RowCache(empty, empty, self.at) for _ in self.network.ar.layers]
        missing = min(wanted, self.at.capacity) - self.cache[0].keys.shape[2]
        if missing > 0:
            for layer in self.cache:
                layer.keys = F.pad(layer.keys, (0, 0, 0, missing))
                layer.values = F.pad(layer.values, (0, 0, 0, missing))

    @torch.inference_mode()
    def join(self, slot: int, text: Mars5Joining) -> None:
        """Read a text's prompt and let it draw with the next step; its slot must be free."""
        self._reserve(1 + len(text.prompt.tokens))
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
        if self.plan.slots == 1 or (self.grows and not self.plan.texts):
            self.cache = []

    @torch.inference_mode()
    def launch(self, steps: int) -> Reading:
        """Run some steps of all texts; waits for nothing. There must be a text.

        Returns a read of (steps, texts) drawn ids: -1 where logits were not all finite, 0 in free slots.
        """
        groups = self.plan.groups()
        return begin_read(torch.stack([self._step(groups) for _ in range(steps)]))

    def read(self, launched: Reading) -> np.ndarray:
        """Wait for a launch. → (steps, texts) ids."""
        return finish_read(launched)

    def logits(self, positions: np.ndarray) -> Tensor:
        """Compute logits of the rows in use, (R, V) float32. positions: (R,) int32."""
        place = int(positions.max())
        self._reserve(1 + place)
        if len(positions) == 1:
            self.at.level(place)
            rotation = self.rotary(place, 1)
        else:
            at = self.host.to_device(positions).long()
            self.at.move(at, min(place + 1, self.at.capacity))
            rotation = self.rotary(at[:, None, None], 1)
        with independent_rows(self.network, 1 + positions):
            return self.network.next_logits(
                self.network.embed(self.tokens[: len(positions)]), rotation, self.cache
            )

    def _step(self, groups: Sequence[Mars5Group]) -> Tensor:
        """Draw the next id of every text. → (texts,) int64."""
        inputs, texts = self.plan.step(), self.plan.slots
        rows = len(inputs.positions)
        ids = self._draw(self._next_logits(inputs.positions), inputs, groups)
        known = ids.clamp(min=0)
        if rows == 1:
            place = int(inputs.recent[0])
            self.recent[:1, place] = known
        else:
            self.recent[torch.arange(rows, device=ids.device), self.host.to_device(inputs.recent)] = known
        self.tokens[:rows] = known[:, None]
        return ids if rows == texts else torch.cat((ids, ids.new_zeros(texts - rows)))

    def _draw(self, logits: Tensor, inputs: Inputs, groups: Sequence[Mars5Group]) -> Tensor:
        """Draw an id from each row that is a text's. (R, V) → (R,)."""
        seen = self.recent[: len(logits)]
        penalty, uniform = map(self.host.to_device, (inputs.penalty[:, None], inputs.uniform[:, None]))
        if not inputs.repeats.all():
            repeats = self.host.to_device(inputs.repeats)
            seen = torch.where(repeats[:, None], seen, self.network.config.vocab_size)
        if len(groups[0].slots) == len(logits):
            return draw_ids(
                logits, seen, penalty, uniform, groups[0].options, lowest=self.lowest, end=self.end
            )
        ids = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        for options, slots in groups:
            own = self.host.to_device(slots)
            ids[own] = draw_ids(
                logits[own], seen[own], penalty[own], uniform[own], options, lowest=self.lowest, end=self.end
            )
        return ids

    def _next_logits(self, positions: np.ndarray) -> Tensor:
        """Compute logits of the rows in use; those of a prompt are known. positions: (R,) → (R, V)."""
        known, rows = self.first, len(positions)
        if len(known) < len(self.plan.texts):
            logits = self.logits(positions)[:rows]
        else:
            logits = next(iter(known.values())).new_zeros(rows, self.network.config.vocab_size)
        for slot, own in known.items():
            logits[slot] = own[0]
        known.clear()
        return logits

    def _nothing(self, window: int) -> Tensor:
        """Build empty places for `window` ids of each text."""
        shape, vocabulary = (self.plan.slots, window), self.network.config.vocab_size
        return torch.full(shape, vocabulary, device=self.network.embed.weight.device)
