"""Dia in a running batch: the next row of every text, each at its own place in its grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from torch_ref.batch import RunningBatch
from torch_ref.device import name_of
from torch_ref.dia.dia import DecoderLayer, Dia, DiaSource
from torch_ref.guard import marked, watched
from torch_ref.host import Host
from torch_ref.layers.row_cache import RowCache, RowPositions
from torch_ref.limits.independent import sequences_apart
from torch_ref.sampling import draw_rows
from tts_core.dia.grid import FREE, RUNNING, DiaGiven, DiaInputs
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01, allowed_ids
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.packed import Packed, PackedMask, PackedPart
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class DiaState(NamedTuple):
    """Of N texts.

    tokens: (N, C), the last row of each.
    since: (N, 1), rows since channel 0's EOS; negative before.
    keys, values: of the texts, (N, K, S, E) of each layer.
    """

    tokens: Tensor
    since: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class DiaDecoder(BatchDecoder):
    """The decoder. empty: (1, 1, source width), the encoding of the empty text; None without guidance.

    Rows are the conditional ones of all texts, then the unconditional ones.
    """

    def __init__(self, network: Dia, empty: Tensor | None):
        self.dia, self.host, config = network, Host(network.logits_dense), network.config
        self.numbers = config.decoder_config.num_channels, config.decoder_config.vocab_size
        self.constants = None if empty is None else network.model.decoder.constants(empty)
        self.delays = self.host.to_device(np.array(config.delay_pattern))
        self.settings = TextSettings(SAMPLER_V01 if config.cross_rope else SAMPLER_0626, self.host)
        self.allowed = self.host.to_device(allowed_ids(*self.numbers, config.eos_token_id))

    def read(self, texts: Sequence[DiaInputs]) -> list[TextRead]:
        """Read texts, and the rows before the last known ones."""
        to_device, decoder = self.host.to_device, self.dia.model.decoder
        packed_texts = Packed.of(len(text.tokens) for text in texts)
        ids = to_device(np.concatenate([text.tokens for text in texts])[None])
        with sequences_apart(self.dia, packed_texts):
            source = self.dia.read_packed(ids, packed_texts.everywhere(to_device))
        packed = Packed.of(text.positions for text in texts)
        caches = packed.caches(decoder.layers, to_device)
        if packed.total:
            rows = to_device(np.concatenate([text.grid[: text.positions] for text in texts])[None]).long()
            spans = [
                pair
                for pair in zip(packed.spans, packed_texts.spans, strict=True)
                if pair[0] in packed.filled
            ]
            constants = self.constants if texts[0].rows == 2 else None
            own = source._replace(
                mask=PackedMask(PackedPart(*pair) for pair in spans), unconditional=constants
            )
            with sequences_apart(self.dia, packed):
                decoder(torch.cat([rows] * texts[0].rows), caches, own)
        config, like = self.dia.config.decoder_config, source.keys[0]
        empty = like.new_zeros(texts[0].rows, config.num_key_value_heads, 0, config.head_dim)
        states = (
            self._state(text, source, span) for text, span in zip(texts, packed_texts.spans, strict=True)
        )
        return [*map(TextRead, states, packed.keys(caches, empty))]

    def _state(self, text: DiaInputs, source: DiaSource, span: slice) -> DiaState:
        """Return the first state of a text. span: its place in the source."""
        last = self.host.to_device(text.grid[None, text.positions]).long()
        keys, values = (tuple(layer[:, :, span] for layer in layers) for layers in source[:2])
        return DiaState(last, torch.full_like(last[:, :1], RUNNING), keys, values)

    def step(
        self, state: DiaState, given: np.ndarray, at: RowPositions, caches: Sequence[RowCache]
    ) -> tuple[Tensor, DiaGiven]:
        """Compute logits of the next rows, (R, C, V) float32."""
        decoder, known, texts = self.dia.model.decoder, DiaGiven.of(given), len(given)
        copies, mask = len(at.on_host) // texts, None
        if known.lengths.min() < known.lengths.max():
            seen = np.arange(known.lengths.max()) < known.lengths[:, None]
            mask = self.host.to_device(seen)[:, None, None]
        source = self._source(state.keys, state.values, mask, copies)
        rotation, cross_rotation = decoder.rotary(at.start, 1), None
        if decoder.cross_rope:
            start = at.start if isinstance(at.start, int) else at.start[:texts]
            cross_rotation = decoder.cross_rotary(start, 1)
        x = decoder.embeddings(state.tokens.repeat(copies, 1)[:, None])
        layers = cast(Sequence[DecoderLayer], decoder.layers)
        for index, (layer, rows) in enumerate(zip(layers, caches, strict=True)):
            x = layer(x, rotation, cross_rotation, rows, source, index)
        return self.dia.head(decoder.norm(x))[:, 0], known

    def draw(
        self,
        made: tuple[Tensor, DiaGiven],
        state: DiaState,
        draws: Draws,
        uniform: Tensor,
        answers: np.ndarray,
    ) -> tuple[Tensor, DiaState]:
        """Draw the next rows, and put them into the grids. → (N, C)."""
        logits, known = made
        texts, end = len(uniform), self.dia.config.eos_token_id
        sampler, settings = self.settings.of(draws.settings)
        table, cond = sampler.named(settings, 3), logits[:texts]
        pair = cond, torch.where(table.cfg_scale != 0, logits[-texts:], cond)
        ids = draw_rows(pair, table, uniform, sampler, allowed=self.allowed, end=end)
        ids = marked(ids, torch.cat(pair))
        return ids, self._accepted(ids, state, known)

    def _accepted(self, ids: Tensor, state: DiaState, known: DiaGiven) -> DiaState:
        """Apply the rule of DelayGrid.accept."""
        config, ending = self.dia.config, ids[:, :1] == self.dia.config.eos_token_id
        if known.is_last.any():
            ending |= self.host.to_device(known.is_last)[:, None] > 0
        since = torch.where(ending & (state.since < 0), 0, state.since + 1)
        tokens = torch.where(since > self.delays, config.pad_token_id, ids.clamp(min=0))
        tokens = torch.where(since == self.delays, config.eos_token_id, tokens)
        if known.is_forced.any():
            forced = self.host.to_device(known.forced)
            tokens = torch.where(forced == FREE, tokens, forced)
        return state._replace(tokens=tokens, since=since)

    def _source(
        self, keys: Sequence[Tensor], values: Sequence[Tensor], mask: Tensor | None, copies: int
    ) -> DiaSource:
        return DiaSource(list(keys), list(values), mask, self.constants if copies == 2 else None)


@torch.inference_mode()
def make_slots(
    network: Dia, empty: Tensor | None, *, texts: int, capacity: int, **bounds: int
) -> RunningBatch:
    """Open a batch of at most `texts` texts of at most `capacity` rows, of which the last is not read.

    empty: (1, 1, source width), the encoding of the empty text; None without guidance.
    """
    return RunningBatch(DiaDecoder(network, empty), texts=texts, capacity=capacity - 1)


def fault(network: Dia, tokens: Tensor, rows: Tensor, *, guided: bool, text: int) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's rows again.

    tokens: (S,) ids of the text.
    rows: (1, T, C), the rows before the marked one.
    text: its position in the batch, from 1.
    """
    dtype = name_of(network.model.decoder.embeddings.embed.weight.dtype)
    with watched(network) as found, torch.inference_mode():
        source = network.read([tokens], network.encode_empty() if guided else None)
        network.next_logits(torch.cat((rows, rows)) if guided else rows, network.new_cache(), source)
    return NotFiniteError(next(iter(found), None), dtype, text=text, row=rows.shape[1])
