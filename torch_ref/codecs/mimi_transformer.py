"""The transformers of Mimi: causal attention over a window, on a stream that comes in pieces.

Upstream: kyutai-labs/moshi@e6a55d2 modules/transformer.py, MIT; parameter names are those of transformers'
MimiModel.
Differs from upstream: a piece of any length sees its whole window; upstream's ring of keys has lost some.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.norm import LayerNorm
from torch_ref.layers.rope import Rotation, rotate
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.qwen3_codec import Qwen3DecoderConfig
from tts_core.nn.positions import rope_table

Kept = tuple[Tensor, Tensor]  # a layer's last keys and values, (B, K, S, E) each


class TransformerMemory(NamedTuple):
    """State passed from one piece to the next."""

    length: int  # steps so far
    layers: list[Kept]


class LayerScale(nn.Module):
    """x · scale, one factor a channel. (B, T, D) → same."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Attention(nn.Module):
    """Self-attention of grouped heads with rotary positions. (B, T, D) → same."""

    def __init__(self, config: MimiConfig | Qwen3DecoderConfig):
        super().__init__()
        self.head_dim, self.window = config.head_dim, config.sliding_window
        rows, key_rows = (
            heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads)
        )
        self.q_proj = nn.Linear(config.hidden_size, rows, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_rows, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_rows, bias=False)
        self.o_proj = nn.Linear(rows, config.hidden_size, bias=False)

    def forward(self, x: Tensor, rotation: Rotation, kept: Kept | None) -> tuple[Tensor, Kept]:
        """Attend to the kept keys and to x. Returns the output and what the next piece keeps."""
        projected = [layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in projected)
        q, k = rotate(q, rotation), rotate(k, rotation)
        if kept:
            k, v = torch.cat((kept[0], k), dim=2), torch.cat((kept[1], v), dim=2)
        mask = self.mask(x.shape[1], k)
        y = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        past = max(0, k.shape[2] - (self.window - 1))
        return self.o_proj(y.transpose(1, 2).flatten(2)), (k[:, :, past:], v[:, :, past:])

    def mask(self, rows: int, keys: Tensor) -> Tensor:
        """Allow the last `rows` to see themselves and the window before. → (rows, S) booleans."""
        length = keys.shape[2]
        column = torch.arange(length, device=keys.device)
        row = torch.arange(length - rows, length, device=keys.device)[:, None]
        return (column <= row) & (column > row - self.window)


class FeedForward(nn.Module):
    """Two linears around a GELU. (B, T, D) → same."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward with scaled residuals. (B, T, D) → same."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        width = config.hidden_size
        self.input_layernorm = LayerNorm(width, config.norm_eps)
        self.self_attn = Attention(config)
        self.self_attn_layer_scale = LayerScale(width)
        self.post_attention_layernorm = LayerNorm(width, config.norm_eps)
        self.mlp = FeedForward(config)
        self.mlp_layer_scale = LayerScale(width)

    def forward(self, x: Tensor, rotation: Rotation, kept: Kept | None) -> tuple[Tensor, Kept]:
        y, last = self.self_attn(self.input_layernorm(x), rotation, kept)
        x = x + self.self_attn_layer_scale(y)
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x))), last


class Transformer(nn.Module):
    """Layers over a stream. (B, C, T) → same."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        self.head_dim, self.theta = config.head_dim, config.rope_theta
        self.layers = nn.ModuleList([TransformerLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(
        self, x: Tensor, memory: TransformerMemory | None = None, rotation: Rotation | None = None
    ) -> tuple[Tensor, TransformerMemory]:
        """Read a piece.

        memory: of the pieces before; None at the start of the stream.
        rotation: of the piece's steps; computed unless given.
        """
        x, kept = x.transpose(1, 2), []
        start = memory.length if memory else 0
        rotation = rotation or self.rotation(x, start)
        for i, layer in enumerate(self.layers):
            x, last = layer(x, rotation, memory.layers[i] if memory else None)
            kept.append(last)
        return x.transpose(1, 2), TransformerMemory(start + x.shape[1], kept)

    def rotation(self, x: Tensor, start: int) -> Rotation:
        """Compute the tables of the steps of x, (B, T, D), which begins at step `start`."""
        cos, sin = rope_table(x.shape[1], self.head_dim, self.theta, start=start)
        return torch.from_numpy(cos).to(x.device), torch.from_numpy(sin).to(x.device)
