"""Slots for texts that decode in parallel, each step by operations of the network, on any device.

Rows of the batch are those of the texts in progress; their memory is copied when a text joins or leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.sampling import choose
from torch_ref.guard import marked
from torch_ref.host import Host
from torch_ref.layers.cache import CHUNK
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import independent_rows
from tts_core.dia2.sampling import Dia2Choice, Dia2Sampling
from tts_core.dia2.slots import Dia2Joining, Dia2Text


class Dia2Slots:
    """Any number of slots; a text takes memory only while it is there."""

    def __init__(self, network: Dia2, **bounds: int):
        self.network, self.host = network, Host(network.transformer.norm)
        self.running: dict[int, Dia2Text] = {}  # by slot, in the order of their rows
        config = network.config
        stack, weight = config.transformer, network.transformer.norm.weight
        empty = 0, stack.num_key_value_heads, 0, stack.head_dim
        kind = network.transformer.compute or network.transformer.text_embed.embedding.weight.dtype
        self.cache = [
            (weight.new_zeros(empty, dtype=kind), weight.new_zeros(empty, dtype=kind))
            for _ in network.transformer.layers
        ]
        self.last = weight.new_zeros((0, config.n_streams), dtype=torch.int64)  # codes of each text
        self.hidden, self.noise = weight.new_zeros(0), weight.new_zeros(0)
        self.nothing = torch.tensor([config.text_zero_id, config.text_pad_id], device=weight.device)
        ids = torch.arange(config.audio_vocab_size, device=weight.device)
        self.is_code = (ids != config.audio_pad_id) & (ids != config.audio_bos_id)
        self._place()

    @torch.inference_mode()
    def join(self, slot: int, text: Dia2Joining) -> None:
        """Read a text's prefix and let it begin with the next step; its slot must be free."""
        one, transformer = Dia2Text(text), self.network.transformer
        if len(text.before):
            cache = transformer.new_cache()
            tokens = self.host.to_device(text.before)[None].repeat(one.rows, 1, 1)
            tokens[1:, :, :2] = self.nothing
            transformer(tokens, 0, cache)
        for index, (keys, values) in enumerate(self.cache):
            nothing = keys.new_zeros(one.rows, keys.shape[1], 0, keys.shape[3])
            read = (cache[index].buffers if len(text.before) else None) or (nothing, nothing)
            fresh = [part[:, :, : one.length] for part in read]
            self.cache[index] = _joined(keys, fresh[0]), _joined(values, fresh[1])
        self.last = torch.cat((self.last, self.last.new_zeros(1, self.last.shape[1])))
        self.running[slot] = one
        self._place()

    @torch.inference_mode()
    def leave(self, slot: int) -> None:
        """Free a slot. Unknown ones do nothing."""
        if slot not in self.running:
            return
        place = [*self.running].index(slot)
        kept = self.owner != place
        others = torch.arange(len(self.last), device=self.last.device) != place
        del self.running[slot]
        length = _chunks(max((text.length for text in self.running.values()), default=0))
        for index, (keys, values) in enumerate(self.cache):
            self.cache[index] = keys[kept][:, :, :length], values[kept][:, :, :length]
        self.last = self.last[others]
        self._place()

    @torch.inference_mode()
    def act(self, inputs: Mapping[int, np.ndarray]) -> dict[int, int]:
        """Run a step of the transformer, and wait for the actions."""
        config, transformer = self.network.config, self.network.transformer
        nothing = np.zeros(2 + config.n_streams, np.int32)
        given = np.stack([inputs.get(slot, nothing) for slot in self.running])
        tokens = self.host.to_device(given).long()
        tokens[:, 2:] = torch.where(tokens[:, 2:] < 0, self.last, tokens[:, 2:])
        rows = tokens[self.owner]
        rows[self.is_bare, :2] = self.nothing
        texts = [*self.running.values()]
        lengths = np.array([text.length for text in texts])
        seen = int(lengths.max()) + 1
        self._make_room(seen)
        at = RowPositions(self.cache[0][0].shape[2])
        at.move(self.host.to_device(lengths)[self.owner], seen)
        places = np.array([text.joining.start + text.steps for text in texts])
        positions = self.host.to_device(places)[self.owner]
        cache = [RowCache(keys, values, at) for keys, values in self.cache]
        with independent_rows(self.network, (1 + lengths).repeat([text.rows for text in texts])):
            self.hidden = transformer(rows[:, None], positions[:, None, None], cache)[:, 0]
            logits = transformer.actions(self.hidden)
        self.noise = self.host.to_device(
            np.stack([text.joining.uniform(text.steps, config) for text in texts])
        )
        drawn = self._choose(logits, 0, None)
        actions = self.host.to_host(drawn).tolist()
        return {slot: action for slot, action in zip(self.running, actions, strict=True) if slot in inputs}

    @torch.inference_mode()
    def draw(self, texts: Mapping[int, tuple[int, int]]) -> tuple[list[int], Tensor]:
        """Draw the step's codes; waits for nothing. Returns the slots, and their codes (N, Q)."""
        network, pad = self.network, self.network.config.text_pad_id
        said = np.array([texts.get(slot, (pad, pad)) for slot in self.running])
        read = self.host.to_device(said)[self.owner]
        cache = network.depformer.new_cache()
        with independent_rows(network):
            found = [self._choose(network.transformer.codes(self.hidden), 1, self.is_code)]
            for stage in range(network.config.n_streams - 1):
                previous = found[-1].clamp(min=0)[self.owner]
                logits = network.depformer(stage, self.hidden, previous, (read[:, 0], read[:, 1]), cache)
                found.append(self._choose(logits, stage + 2, None))
        codes = torch.stack(found, dim=1)
        self.last = codes.clamp(min=0)
        for slot in texts:
            self.running[slot].steps += 1
        slots = [slot for slot in self.running if slot in texts]
        places = [place for place, slot in enumerate(self.running) if slot in texts]
        return slots, codes[places]

    def read(self, drawn: tuple[list[int], Tensor]) -> dict[int, np.ndarray]:
        """Wait for codes. → (Q,) int32 by slot, -1 where logits were not all finite."""
        slots, codes = drawn
        return dict(zip(slots, self.host.to_host(codes).astype(np.int32), strict=True))

    def _choose(self, logits: Tensor, place: int, is_code: Tensor | None) -> Tensor:
        """Choose an id for each text, those of equal settings together. (R, V) → (N,).

        place: of its random numbers: 0 is the action.
        """
        cond, uncond = logits[self.first], logits[self.other]
        noise, ids = self.noise[:, place, : logits.shape[-1]], self.first.new_zeros(len(cond))
        for sampling, texts in self.groups:
            choice: Dia2Choice = sampling.audio if place else sampling.action
            if len(self.groups) == 1:
                ids = choose(cond, uncond, choice, noise, is_code)
            else:
                ids[texts] = choose(cond[texts], uncond[texts], choice, noise[texts], is_code)
        return marked(ids[:, None], torch.cat((cond, uncond))[:, None])[:, 0]

    def _place(self) -> None:
        """Assign rows to texts. owner: text of each row.  is_bare: rows without text.  first, other: both
        rows of each text, the same one without guidance.  groups: texts by their settings.
        """
        texts, device = [*self.running.values()], self.nothing.device
        counts = np.array([text.rows for text in texts], np.int64)
        first = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(len(texts)), counts)
        self.owner, self.first, self.other = (
            torch.from_numpy(each).to(device) for each in (owner, first, first + counts - 1)
        )
        bare = np.ones(len(owner), bool)
        bare[first] = False
        self.is_bare = torch.from_numpy(bare).to(device)
        groups: dict[Dia2Sampling, list[int]] = {}
        for place, text in enumerate(texts):
            groups.setdefault(text.joining.sampling, []).append(place)
        self.groups = [(sampling, torch.tensor(rows, device=device)) for sampling, rows in groups.items()]

    def _make_room(self, length: int) -> None:
        """Let the buffers of keys and values grow to this many of each row."""
        short = _chunks(length) - self.cache[0][0].shape[2]
        if short > 0:
            for index, held in enumerate(self.cache):
                keys, values = (F.pad(each, (0, 0, 0, short)) for each in held)
                self.cache[index] = keys, values


def _chunks(rows: int) -> int:
    return -(-rows // CHUNK) * CHUNK


def _joined(held: Tensor, rows: Tensor) -> Tensor:
    """Append rows of the batch. (R, K, T, E) and (1 or 2, K, S, E) → (R + 1 or 2, K, longer, E)."""
    longest = max(held.shape[2], rows.shape[2])
    return torch.cat([F.pad(each, (0, 0, 0, longest - each.shape[2])) for each in (held, rows)])
