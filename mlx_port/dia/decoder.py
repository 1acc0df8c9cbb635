"""Dia in a running batch: the next row of every text, each at its own place in its grid.

A step takes the last row and the end of each text from the device, so the next one is built and submitted
while the last one runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_port.batch import RunningBatch
from mlx_port.dia.dia import Dia, DiaSource
from mlx_port.guard import watched
from mlx_port.host import Host
from mlx_port.layers.row_cache import RowPositions
from mlx_port.steps.apart import sequences_apart
from mlx_port.steps.dia.drawing import accepting, drawing
from mlx_port.steps.dia.fused import fused
from mlx_port.steps.row_keys import SharedCache
from tts_core.dia.grid import RUNNING, DiaGiven, DiaInputs
from tts_core.dia.options import SAMPLER_0626, SAMPLER_V01
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError
from tts_core.nn.packed import Packed, PackedMask, PackedPart
from tts_core.nn.sampling import TextSettings
from tts_core.speaking.decoder import BatchDecoder, TextRead
from tts_core.speaking.rows import Draws


class DiaState(NamedTuple):
    """Of N texts.

    tokens: (N, C), the last row of each.
    since: (N, C), rows since channel 0's EOS; negative before.
    keys, values: of the texts, (N, K, S, E) of each layer.
    """

    tokens: mx.array
    since: mx.array
    keys: tuple[mx.array, ...]
    values: tuple[mx.array, ...]


class DiaDecoder(BatchDecoder):
    """The decoder. empty: (1, 1, source width), the encoding of the empty text; None without guidance.

    Rows are the conditional ones of all texts, then the unconditional ones.
    """

    ahead, is_exact, cache = 1, True, SharedCache

    def __init__(self, network: Dia, empty: mx.array | None):
        self.dia, self.host, config = network, Host(network.logits_dense), network.config
        self.numbers = config.decoder_config.num_channels, config.decoder_config.vocab_size
        self.settings = TextSettings(SAMPLER_V01 if config.cross_rope else SAMPLER_0626, self.host)
        self.accept, self.forms = accepting(config), {1: fused(network, None)}  # by rows of a text
        if empty is not None:
            self.forms[2] = fused(network, empty)

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
            rows = to_device(np.concatenate([text.grid[: text.positions] for text in texts])[None])
            spans = [
                pair
                for pair in zip(packed.spans, packed_texts.spans, strict=True)
                if pair[0] in packed.filled
            ]
            constants = self.forms[texts[0].rows].constants
            own = source._replace(
                mask=PackedMask(PackedPart(*pair) for pair in spans), unconditional=constants
            )
            with sequences_apart(self.dia, packed):
                decoder(mx.concatenate([rows] * texts[0].rows), caches, own)
        config, like = self.dia.config.decoder_config, source.keys[0]
        empty = mx.zeros((texts[0].rows, config.num_key_value_heads, 0, config.head_dim), like.dtype)
        states = (
            self._state(text, source, span) for text, span in zip(texts, packed_texts.spans, strict=True)
        )
        return [*map(TextRead, states, packed.keys(caches, empty))]

    def _state(self, text: DiaInputs, source: DiaSource, span: slice) -> DiaState:
        """Return the first state of a text. span: its place in the source."""
        last = self.host.to_device(text.grid[None, text.positions])
        keys, values = (tuple(layer[:, :, span] for layer in layers) for layers in source[:2])
        return DiaState(last, mx.full(last.shape, RUNNING), keys, values)

    def step(
        self, state: DiaState, given: np.ndarray, at: RowPositions, caches: Sequence[SharedCache]
    ) -> tuple[mx.array, DiaGiven]:
        """Compute logits of the next rows, (G, N, C, V)."""
        known, copies = DiaGiven.of(given), len(at.on_host) // len(given)
        source = state.keys, state.values
        logits = self.forms[copies].logits(state.tokens, at, caches, source, known.lengths)
        return logits.reshape(copies, len(given), *self.numbers), known

    def draw(
        self,
        made: tuple[mx.array, DiaGiven],
        state: DiaState,
        draws: Draws,
        uniform: mx.array,
        answers: np.ndarray,
    ) -> tuple[mx.array, DiaState]:
        """Draw the next rows, and put them into the grids. → (N, C)."""
        logits, known = made
        sampler, settings = self.settings.of(draws.settings)
        ids = drawing(sampler, self.dia.config)(logits, settings, uniform)
        return ids, self._accepted(ids, state, known)

    def _accepted(self, ids: mx.array, state: DiaState, known: DiaGiven) -> DiaState:
        """Apply the rule of DelayGrid.accept."""
        wide = np.broadcast_to(known.is_last[:, None], ids.shape)  # one launch takes arrays of one shape
        forced, is_last = (self.host.to_device(item) for item in (known.forced, wide))
        tokens, since = self.accept(ids, state.since, forced, is_last)
        return state._replace(tokens=tokens, since=since)


def make_slots(
    network: Dia, empty: mx.array | None, *, texts: int, capacity: int, **bounds: int
) -> RunningBatch:
    """Open a batch of at most `texts` texts of at most `capacity` rows, of which the last is not read.

    empty: (1, 1, source width), the encoding of the empty text; None without guidance.
    """
    return RunningBatch(DiaDecoder(network, empty), texts=texts, capacity=capacity - 1)


def fault(network: Dia, tokens: mx.array, rows: mx.array, *, guided: bool, text: int) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's rows again.

    tokens: (S,) ids of the text.
    rows: (1, T, C), the rows before the marked one.
    text: its position in the batch, from 1.
    """
    dtype = str(network.model.decoder.embeddings.embed.weight.dtype).removeprefix("mlx.core.")
    with watched(network) as found:
        source = network.read([tokens], network.encode_empty() if guided else None)
        network.next_logits(mx.concatenate([rows, rows]) if guided else rows, network.new_cache(), source)
    return NotFiniteError(next(iter(found), None), dtype, text=text, row=rows.shape[1])
