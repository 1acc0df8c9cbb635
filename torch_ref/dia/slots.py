"""Slots for texts that decode in parallel, each step by operations of the network, on any device.

Rows of the batch are those of the texts in progress; their memory is copied when a text joins or leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.dia.dia import DecoderLayer, Dia, DiaSource
from torch_ref.dia.sampling import candidates_0626, candidates_v01, draw
from torch_ref.guard import marked
from torch_ref.host import Host
from torch_ref.layers.cache import CHUNK
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.remedies import first_largest
from tts_core.dia.grid import DelayGrid
from tts_core.dia.joining import DiaJoining
from tts_core.dia.sampling import DiaSampling


@dataclass(frozen=True, eq=False)
class _DiaText:
    """A text in progress. grid: its rows so far, one text's."""

    joining: DiaJoining
    grid: DelayGrid

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Numbers for its next row, (C, V) float32. Inside its prompt it draws nothing from its source."""
        if self.grid.step < 0 or not self.joining.sampling.temperature:
            return np.full(shape, 0.5, np.float32)
        return self.joining.noise.uniform(self.grid.step, shape)


class DiaSlots:
    """`texts` slots. nothing: (1, 1, source width), the encoding of the empty text; None without guidance."""

    steps, ahead = 1, 0  # of a launch, and launches before one is read
    can_step = True  # no text waits

    @torch.inference_mode()
    def __init__(self, network: Dia, nothing: Tensor | None, *, texts: int, **bounds: int):
        self.network, self.texts, self.host = network, texts, Host(network.logits_dense)
        decoder = network.model.decoder
        self.constants = None if nothing is None else decoder.constants(nothing)
        self.groups = 1 if nothing is None else 2  # unconditional rows follow the conditional ones
        self.running: dict[int, _DiaText] = {}  # by slot, in the order of their rows
        self.left: set[int] = set()  # slots of them that are free
        config, layers = network.config.decoder_config, range(network.config.decoder_config.num_hidden_layers)
        weight = network.logits_dense.weight
        own = self.groups, 0, config.num_key_value_heads, 0, config.head_dim
        source = 1, 0, config.cross_num_key_value_heads, 0, config.cross_head_dim
        self.own = [(weight.new_zeros(own), weight.new_zeros(own)) for _ in layers]
        self.source = [(weight.new_zeros(source), weight.new_zeros(source)) for _ in layers]

    @torch.inference_mode()
    def join(self, slot: int, text: DiaJoining) -> None:
        """Read a text and let it start with the next step; its slot must be free."""
        self._forget()
        device, before = self.network.logits_dense.weight.device, text.filled - 1
        source = self.network.read([torch.from_numpy(text.tokens).to(device)])
        source = source._replace(unconditional=self.constants)
        read = zip(source.keys, source.values, strict=True)
        self.source = [_joined(held, new) for held, new in zip(self.source, read, strict=True)]
        cache = self.network.new_cache()
        if before:
            rows = torch.from_numpy(text.grid[None, :before]).to(device)
            self.network.model.decoder(torch.cat([rows] * self.groups), cache, source)
        for index, layer in enumerate(cache):  # one after the other: only one layer is held twice
            held = self.own[index]
            empty = held[0].new_zeros(self.groups, held[0].shape[2], 0, held[0].shape[4])
            known, layer.buffers = layer.buffers or (empty, empty), None
            self.own[index] = _joined(held, (known[0][:, :, :before], known[1][:, :, :before]))
        self.running[slot] = _DiaText(text, DelayGrid.joined(self.network.config, text))

    def leave(self, slot: int) -> None:
        """Free a slot; its memory too: with the last text, or before the next launch or join."""
        if slot in self.running:
            self.left.add(slot)
        if len(self.left) == len(self.running):
            self._forget()

    @torch.inference_mode()
    def launch(self, steps: int) -> np.ndarray:
        """Run some steps. → (steps, B, C) int32, -1 where logits were not all finite, 0 in free slots."""
        self._forget()
        return np.stack([self._step() for _ in range(steps)])

    def read(self, launched: np.ndarray) -> np.ndarray:
        """Return the ids of a launch."""
        return launched

    def _forget(self) -> None:
        """Drop the rows of the texts that left."""
        if not self.left:
            return
        kept = [row for row, slot in enumerate(self.running) if slot not in self.left]
        self.running = {slot: text for slot, text in self.running.items() if slot not in self.left}
        self.left.clear()
        texts = self.running.values()
        rows = _chunks(max((text.grid.filled for text in texts), default=0))
        longest = max((len(text.joining.tokens) for text in texts), default=0)
        for held, length in ((self.own, rows), (self.source, longest)):
            for index, (keys, values) in enumerate(held):  # only one layer is held twice
                held[index] = keys[:, kept, :, :length], values[:, kept, :, :length]

    def _step(self) -> np.ndarray:
        """Draw the next row of every text, (B, C) int32, and put it into its grid."""
        config = self.network.config
        drawn = np.zeros((self.texts, config.decoder_config.num_channels), np.int32)
        if not self.running:
            return drawn
        taken = list(self.running)
        drawn[taken] = self.host.to_host(self._draw(self._logits(), taken))
        for slot, text in self.running.items():
            if text.grid.filled < len(text.grid.rows):  # rows past the grid's end are dropped
                text.grid.accept(np.maximum(drawn[slot], 0))
        return drawn

    def _draw(self, logits: Tensor, taken: Sequence[int]) -> Tensor:
        """Draw ids of every text, those of equal settings together. (R, C, V) → (N, C)."""
        config, texts = self.network.config, [self.running[slot] for slot in taken]
        candidates = candidates_v01 if config.cross_rope else candidates_0626
        cond, uncond = logits[: len(texts)], logits[-len(texts) :]
        same: dict[DiaSampling, list[int]] = {}
        for row, text in enumerate(texts):
            same.setdefault(text.joining.sampling, []).append(row)
        ids = torch.zeros(cond.shape[:2], dtype=torch.int64, device=logits.device)
        for sampling, rows in same.items():
            part = slice(None) if len(same) == 1 else rows
            kept = candidates(cond[part], uncond[part], sampling, config.eos_token_id)
            if sampling.temperature:
                uniform = np.stack([texts[row].uniform(tuple(cond.shape[1:])) for row in rows])
                ids[part] = draw(kept, torch.from_numpy(uniform).to(logits.device))
            else:
                ids[part] = first_largest(kept)
        return marked(ids, logits)

    def _logits(self) -> Tensor:
        """Compute logits for the next row of every text, (R, C, V) float32."""
        decoder, device = self.network.model.decoder, self.network.logits_dense.weight.device
        texts = list(self.running.values())
        last = np.stack([text.grid.rows[text.grid.filled - 1] for text in texts])
        places = np.array([text.grid.filled - 1 for text in texts])
        seen = int(places.max()) + 1
        self._make_room(seen)
        tokens = torch.from_numpy(last[:, None]).to(device).repeat(self.groups, 1, 1)
        positions = torch.from_numpy(places).to(device)
        at = RowPositions(self.own[0][0].shape[3])
        at.move(positions.repeat(self.groups), seen)
        cache = [RowCache(keys.flatten(0, 1), values.flatten(0, 1), at) for keys, values in self.own]
        source = self._source([len(text.joining.tokens) for text in texts], device)
        rotation = decoder.rotary(at.positions[:, None, None], 1)
        cross_rotation = decoder.cross_rotary(positions[:, None, None], 1) if decoder.cross_rope else None
        x = decoder.embeddings(tokens)
        layers = cast(Sequence[DecoderLayer], decoder.layers)
        for index, (layer, rows) in enumerate(zip(layers, cache, strict=True)):
            x = layer(x, rotation, cross_rotation, rows, source, index)
        return self.network.head(decoder.norm(x))[:, 0]

    def _source(self, lengths: Sequence[int], device: torch.device) -> DiaSource:
        keys, values = ([pair[which][0] for pair in self.source] for which in (0, 1))
        mask = None
        if min(lengths) < max(lengths):
            ends = torch.tensor(lengths, device=device)
            mask = (torch.arange(max(lengths), device=device) < ends[:, None])[:, None, None]
        return DiaSource(keys, values, mask, self.constants)

    def _make_room(self, rows: int) -> None:
        """Let the buffers of keys and values grow to hold `rows`."""
        short = _chunks(rows) - self.own[0][0].shape[3]
        if short > 0:
            for index, (keys, values) in enumerate(self.own):  # only one layer is held twice
                self.own[index] = F.pad(keys, (0, 0, 0, short)), F.pad(values, (0, 0, 0, short))


def _chunks(rows: int) -> int:
    return -(-rows // CHUNK) * CHUNK


def _joined(held: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Append a text. held: (G, N, K, T, E) each.  new: (G, K, S, E) each → (G, N + 1, K, longer, E) each."""
    keys, values = (_appended(one, rows) for one, rows in zip(held, new, strict=True))
    return keys, values


def _appended(held: Tensor, rows: Tensor) -> Tensor:
    longest = max(held.shape[3], rows.shape[2])
    held, rows = (F.pad(one, (0, 0, 0, longest - one.shape[-2])) for one in (held, rows))
    return torch.cat((held, rows[:, None]), dim=1)
