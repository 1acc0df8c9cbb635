"""The residual transformer for the timesteps of a run, on kernels and joined weights.

Rounded where the layers round; sums in another order. The text is encoded for all timesteps at once, before
the first; the last layer computes only frames that need logits.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.cuda import pointwise
from torch_ref.cuda import rows as row_kernels
from torch_ref.cuda.concatenated import concatenated, stacked
from torch_ref.cuda.mars5.frames import embed_frames, norm_heads
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.norm import LayerNorm
from torch_ref.mars5.encoder import EncoderLayer, MultiheadAttention, merge_heads, split_heads
from torch_ref.mars5.residual_transformer import DecoderLayer, Mars5Source, ResidualTransformer

ROWS_AT_ONCE = 4096  # of text, encoded together
ALIGNMENT = 8  # classes; products of other sizes are slow


def runs(network: ResidualTransformer) -> bool:
    """Return whether the kernels support this network."""
    return row_kernels.usable(network.text_embed.weight, 16)  # a head's width does not matter here


class FusedTransformer:
    """The network for one run. memory: (T, R, N + 1, D), its text encoded for every timestep."""

    def __init__(self, network: ResidualTransformer, source: Mars5Source):
        assert source.text_mask is None
        assert source.frame_mask is None
        self.network, self.source, self.memory = network, source, _encoded(network, source)
        self.branches, self.dtype = len(source.text), network.text_embed.weight.dtype
        self.layers = cast(list[DecoderLayer], list(network.tfm.decoder.layers))
        self.tables = concatenated(cast(list[nn.Embedding], list(network.residual_encoder.embs)))
        self.gate_up = [concatenated((layer.activation.W, layer.activation.V)) for layer in self.layers]
        cross = [layer.multihead_attn.in_proj for layer in self.layers]
        width = network.config.hidden_size
        whole = concatenated(cross).unflatten(0, (len(cross), -1))
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

    def logits(self, codes: Tensor, t: Tensor, first: int, book: int) -> Tensor:
        """Compute logits of the frames from the first one on, and of codebooks from `book` on.

        codes: (F, Q).
        t: (1,). → (R, F', Q', K), a view.
        """
        source, text = self.source, self._text(t)
        x = embed_frames(codes, self.tables, source.positions, source.decoder_steps, t)
        added, rows = None, 1
        for index, layer in enumerate(self.layers):
            opened = first if layer is self.layers[-1] else 0
            y = _norm(x, added, layer.norm1, self.dtype).unflatten(0, (rows, -1))
            added = _attended(layer.self_attn, y, opened).flatten(0, 1)
            if opened:
                x = x.unflatten(0, (rows, -1))[:, opened:].flatten(0, 1)
            y = _norm(x, added, layer.norm2, self.dtype).unflatten(0, (rows, -1))
            added = _read(layer.multihead_attn, y, text[index]).flatten(0, 1)
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
        """Compute all layers' keys and values of the text at a timestep. → (layers, R, N + 1, 2 D)."""
        memory = self.memory[t][0].flatten(0, 1)
        both = torch.baddbmm(self.text_biases, memory.expand(len(self.layers), -1, -1), self.text_weights)
        return both.unflatten(1, (self.branches, -1))


def _encoded(network: ResidualTransformer, source: Mars5Source) -> Tensor:
    """Encode the text for every timestep. → (T, R, N + 1, D), in the network's dtype."""
    encoder, dtype = network.tfm.encoder, network.text_embed.weight.dtype
    layers = cast(list[EncoderLayer], list(encoder.layers))
    weights = [concatenated((layer.activation.W, layer.activation.V)) for layer in layers]
    branches, rows, width = source.text.shape
    steps = max(1, ROWS_AT_ONCE // (branches * rows))
    parts = []
    for moments in source.encoder_steps.split(steps):
        x = (source.text + moments[:, None, None]).view(-1, width)
        added = None
        for layer, weight in zip(layers, weights, strict=True):
            y = _norm(x, added, layer.norm1, dtype).unflatten(0, (-1, rows))
            added = _attended(layer.self_attn, y).flatten(0, 1)
            added = _fed(layer, _norm(x, added, layer.norm2, dtype), weight)
        parts.append(_norm(x, added, encoder.norm, dtype).view(-1, branches, rows, width))
    return torch.cat(parts)


def _norm(x: Tensor, added: Tensor | None, norm: LayerNorm, dtype: torch.dtype) -> Tensor:
    return pointwise.add_layer_norm(x, added, norm.weight, norm.bias, norm.eps, dtype=dtype)


def _fed(layer: DecoderLayer | EncoderLayer, y: Tensor, gate_up: Tensor) -> Tensor:
    return layer.linear2(pointwise.gated(F.linear(y, gate_up)))


def _attended(attention: MultiheadAttention, y: Tensor, first: int = 0) -> Tensor:
    """Attend from the rows from the first one on, to all. (R, F, D) → (R, F', D)."""
    queries, keys, values = (split_heads(part, attention.heads) for part in attention.in_proj(y).chunk(3, -1))
    attended = scaled_dot_product_attention(queries[:, :, first:], keys, values)
    return attention.out_proj(merge_heads(attended))


def _read(attention: MultiheadAttention, y: Tensor, text: Tensor) -> Tensor:
    """Attend to keys and values of the text. (1 or R, F, D), (R, N + 1, 2 D) → (R, F, D)."""
    width = y.shape[-1]
    weight, bias = attention.in_proj.weight[:width], attention.in_proj.bias[:width]
    queries = split_heads(F.linear(y, weight, bias).expand(len(text), -1, -1), attention.heads)
    keys, values = (split_heads(part, attention.heads) for part in text.chunk(2, -1))
    return attention.out_proj(merge_heads(scaled_dot_product_attention(queries, keys, values)))
