"""The transformers of Mimi: causal attention over a window, on a stream that comes in pieces.

Upstream: kyutai-labs/moshi@e6a55d2 modules/transformer.py, MIT; parameter names are those of transformers'
MimiModel.
Differs from upstream: a piece of any length sees its whole window; upstream's ring of keys has lost some.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.device import to_device
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.carried import Carried, StreamPositions
from torch_ref.layers.norm import LayerNorm
from torch_ref.layers.rope import rotate
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.qwen3_codec import Qwen3DecoderConfig
from tts_core.nn.positions import stream_positions


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
        self.head_dim, self.window, self.theta = config.head_dim, config.sliding_window, config.rope_theta
        rows, key_rows = (
            heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads)
        )
        self.q_proj = nn.Linear(config.hidden_size, rows, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_rows, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_rows, bias=False)
        self.o_proj = nn.Linear(rows, config.hidden_size, bias=False)

    def forward(self, x: Tensor, positions: StreamPositions, carried: Carried | None = None) -> Tensor:
        """Attend to x and to the keys before it."""
        projected = [layer(x) for layer in (self.q_proj, self.k_proj, self.v_proj)]
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in projected)
        q, k = rotate(q, positions[:2]), rotate(k, positions[:2])
        if carried:
            k, v = carried.appended(k, self.window - 1), carried.appended(v, self.window - 1)
        y = scaled_dot_product_attention(q, k, v, positions.mask, enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(2))

    def positions(self, x: Tensor, carried: Carried | None = None) -> StreamPositions:
        """Find the steps of x, (B, T, D), in their streams."""
        carried = carried or Carried()
        sizes = {"window": self.window, "head_dim": self.head_dim, "theta": self.theta}
        found = stream_positions(carried.starts, x.shape[1], carried.held, **sizes)
        return StreamPositions(*(to_device(item, x.device) for item in found))


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

    def forward(self, x: Tensor, positions: StreamPositions, carried: Carried | None = None) -> Tensor:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), positions, carried))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class Transformer(nn.Module):
    """Layers over a stream. (B, C, T) → same."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        self.layers = nn.ModuleList([TransformerLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        x = x.transpose(1, 2)
        positions = self.positions(x, carried)
        for layer in self.layers:
            x = layer(x, positions, carried)
        return x.transpose(1, 2)

    def positions(self, x: Tensor, carried: Carried | None = None) -> StreamPositions:
        """Find the steps of x, (B, T, D), in their streams."""
        return cast(TransformerLayer, self.layers[0]).self_attn.positions(x, carried)
