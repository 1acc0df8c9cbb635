"""The residual transformer for the timesteps of one run, or of several, on kernels and joined weights.

Rounded where the layers round; sums in another order. A text is encoded for all timesteps at once, before
the first; the last layer computes only frames that need logits. Frames and texts of several runs follow one
another; attention is each run's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cuda import pointwise
from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.joined import joined, stacked
from torch_ref.cuda.mars5.frames import embed_frames, norm_heads
from torch_ref.layers.norm import LayerNorm
from torch_ref.mars5.encoder import EncoderLayer, MultiheadAttention, Pairs, attend, merge_heads, split_heads
from torch_ref.mars5.residual_transformer import DecoderLayer, Mars5Source, ResidualTransformer

ROWS_AT_ONCE = 4096  # of text, encoded together
ALIGNMENT = 8  # classes; products of other sizes are slow


def runs(network: ResidualTransformer) -> bool:
    """Return whether the kernels support this network."""
    return row_kernels.usable(network.text_embed.weight, 16)  # a head's width does not matter here


def in_line(lengths: Sequence[int]) -> list[slice]:
    """Return the place of each of several sequences that follow one another."""
    return [slice(start, stop) for start, stop in pairwise(accumulate(lengths, initial=0))]


class Reading(NamedTuple):
    """A run's inputs, with its text encoded for every timestep. memory: (T, R, N + 1, D), in the network's
    dtype.
    """

    source: Mars5Source
    memory: Tensor

    @classmethod
    def of(cls, network: ResidualTransformer, source: Mars5Source) -> Reading:
        """Encode the text."""
        assert source.text_mask is None
        assert source.frame_mask is None
        return cls(source, _encoded(network, source))


class FusedTransformer:
    """Runs of the network that are all guided, or none is."""

    def __init__(self, network: ResidualTransformer, readings: Sequence[Reading]):
        self.network, self.readings = network, readings
        sources = [reading.source for reading in readings]
        self.branches, self.dtype = len(sources[0].text), network.text_embed.weight.dtype
        self.layers = cast(list[DecoderLayer], list(network.tfm.decoder.layers))
        self.tables = joined(cast(list[nn.Embedding], list(network.residual_encoder.embs)))
        self.gate_up = [joined((layer.activation.W, layer.activation.V)) for layer in self.layers]
        cross = [layer.multihead_attn.in_proj for layer in self.layers]
        width = network.config.hidden_size
        whole = joined(cross).unflatten(0, (len(cross), -1))
        self.text_weights = whole[:, width:].transpose(1, 2)  # (layers, D, 2 D)
        self.text_biases = torch.stack([layer.bias[width:] for layer in cross])[:, None]
        heads = cast(list[nn.Sequential], list(network.residual_decoder))
        norms = [cast(LayerNorm, head[0]) for head in heads]
        classes = -(-network.config.n_classes // ALIGNMENT) * ALIGNMENT
        linear = [cast(nn.Linear, head[1]) for head in heads]
        self.head_weights = stacked(linear, classes).transpose(1, 2)
        biases = torch.stack([layer.bias for layer in linear])
        self.head_biases = F.pad(biases, (0, classes - biases.shape[1]))[:, None]
        self.head_norms = (
            torch.stack([norm.weight for norm in norms]),
            torch.stack([norm.bias for norm in norms]),
        )
        self.head_eps = norms[0].eps
        frames, device = [len(source.positions) for source in sources], self.tables.device
        self.frames, self.texts = in_line(frames), in_line([source.text.shape[1] for source in sources])
        self.positions = torch.cat([source.positions for source in sources])
        self.moments = torch.cat([source.decoder_steps for source in sources])
        first = in_line([len(source.decoder_steps) for source in sources])  # rows of `moments`
        starts = torch.tensor([own.start for own in first], device=device)
        self.starts = starts.repeat_interleave(torch.tensor(frames, device=device))
        self.owners = torch.arange(len(frames), device=device).repeat_interleave(
            torch.tensor(frames, device=device)
        )

    def logits(self, codes: Tensor, t: Tensor, firsts: Sequence[int], book: int) -> Tensor:
        """Compute logits of each run's frames from its first one on, and of codebooks from `book` on.

        codes: (F, Q), of all runs.
        t: (B,).
        firsts: B frames. → (R, F', Q', K), a view.
        """
        x = embed_frames(codes, self.tables, self.positions, self.moments, t[self.owners] + self.starts)
        text = self._text(t)
        opened = [slice(own.start + first, own.stop) for own, first in zip(self.frames, firsts, strict=True)]
        added, rows = None, 1
        for index, layer in enumerate(self.layers):
            last = layer is self.layers[-1] and any(firsts)
            y = _norm(x, added, layer.norm1, self.dtype).unflatten(0, (rows, -1))
            added = _attended(layer.self_attn, y, self.frames, opened if last else self.frames).flatten(0, 1)
            if last:
                whole = x.unflatten(0, (rows, -1))
                x = torch.cat([whole[:, own] for own in opened], dim=1).flatten(0, 1)
            y = _norm(x, added, layer.norm2, self.dtype).unflatten(0, (rows, -1))
            own = in_line([own.stop - own.start for own in opened]) if last else self.frames
            pairs = list(zip(own, self.texts, strict=True))
            added = _read(layer.multihead_attn, y, text[index], pairs).flatten(0, 1)
            if rows < self.branches:
                x, rows = x.repeat(self.branches, 1), self.branches
            added = _fed(layer, _norm(x, added, layer.norm3, self.dtype), self.gate_up[index])
        assert added is not None
        norm = self.network.tfm.decoder.norm
        gains, biases = (part[book:] for part in self.head_norms)
        y = norm_heads(x, added, (norm.weight, norm.bias, norm.eps), gains, biases, self.head_eps)
        made = torch.baddbmm(self.head_biases[book:], y, self.head_weights[book:])
        classes = self.network.config.n_classes
        return made.unflatten(1, (self.branches, -1))[..., :classes].permute(1, 2, 0, 3)

    def _text(self, t: Tensor) -> Tensor:
        """Compute all layers' keys and values of the texts at their timesteps. → (layers, R, M, 2 D)."""
        memories = zip(self.readings, t.split(1), strict=True)
        memory = torch.cat([reading.memory[at][0] for reading, at in memories], dim=1).flatten(0, 1)
        both = torch.baddbmm(self.text_biases, memory.expand(len(self.layers), -1, -1), self.text_weights)
        return both.unflatten(1, (self.branches, -1))


def _encoded(network: ResidualTransformer, source: Mars5Source) -> Tensor:
    """Encode the text for every timestep. → (T, R, N + 1, D), in the network's dtype."""
    encoder, dtype = network.tfm.encoder, network.text_embed.weight.dtype
    layers = cast(list[EncoderLayer], list(encoder.layers))
    weights = [joined((layer.activation.W, layer.activation.V)) for layer in layers]
    branches, rows, width = source.text.shape
    steps, whole = max(1, ROWS_AT_ONCE // (branches * rows)), [slice(rows)]
    parts = []
    for moments in source.encoder_steps.split(steps):
        x = (source.text + moments[:, None, None]).view(-1, width)
        added = None
        for layer, weight in zip(layers, weights, strict=True):
            y = _norm(x, added, layer.norm1, dtype).unflatten(0, (-1, rows))
            added = _attended(layer.self_attn, y, whole, whole).flatten(0, 1)
            added = _fed(layer, _norm(x, added, layer.norm2, dtype), weight)
        parts.append(_norm(x, added, encoder.norm, dtype).view(-1, branches, rows, width))
    return torch.cat(parts)


def _norm(x: Tensor, added: Tensor | None, norm: LayerNorm, dtype: torch.dtype) -> Tensor:
    return pointwise.add_layer_norm(x, added, norm.weight, norm.bias, norm.eps, dtype=dtype)


def _fed(layer: DecoderLayer | EncoderLayer, y: Tensor, gate_up: Tensor) -> Tensor:
    return layer.linear2(pointwise.gated(F.linear(y, gate_up)))


def _attended(
    attention: MultiheadAttention, y: Tensor, runs: Sequence[slice], opened: Sequence[slice]
) -> Tensor:
    """Attend from the opened rows of each run to all of the run's. (R, F, D) → (R, F', D)."""
    queries, keys, values = (split_heads(part, attention.heads) for part in attention.in_proj(y).chunk(3, -1))
    pairs = list(zip(opened, runs, strict=True))
    return attention.out_proj(merge_heads(attend(queries, keys, values, pairs)))


def _read(attention: MultiheadAttention, y: Tensor, text: Tensor, pairs: Pairs) -> Tensor:
    """Attend to keys and values of the texts. (1 or R, F, D), (R, M, 2 D) → (R, F, D)."""
    width = y.shape[-1]
    weight, bias = attention.in_proj.weight[:width], attention.in_proj.bias[:width]
    queries = F.linear(y, weight, bias).expand(len(text), -1, -1)
    keys, values = (split_heads(part, attention.heads) for part in text.chunk(2, -1))
    return attention.out_proj(merge_heads(attend(split_heads(queries, attention.heads), keys, values, pairs)))
