"""The decoder of Qwen3-TTS's codec: a windowed transformer over frames, then causal convolutions.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones, with the entries of a
codebook computed.
No known difference.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.encodec import CausalConvTranspose1d
from torch_ref.codecs.mimi import CausalConv1d, SplitResidualVectorQuantizer, through
from torch_ref.codecs.mimi_transformer import Attention, LayerScale
from torch_ref.layers.carried import Carried, StreamPositions
from torch_ref.layers.feed_forward import FeedForward
from torch_ref.layers.norm import LayerNorm, RMSNorm
from torch_ref.layers.snake import LogSnake1d
from tts_core.codecs.qwen3_codec import (
    DILATIONS,
    EXPANSION,
    KERNEL,
    NORM_EPS,
    PRE_KERNEL,
    Qwen3DecoderConfig,
)


class TransformerLayer(nn.Module):
    """Pre-norm attention and feed-forward with scaled residuals. (B, T, D) → same."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(width, eps)
        self.self_attn = Attention(config)
        self.self_attn_layer_scale = LayerScale(width)
        self.post_attention_layernorm = RMSNorm(width, eps)
        self.mlp = FeedForward(width, config.intermediate_size)
        self.mlp_layer_scale = LayerScale(width)

    def forward(self, x: Tensor, positions: StreamPositions, carried: Carried | None = None) -> Tensor:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), positions, carried))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class Transformer(nn.Module):
    """Layers over a stream of frames, between two projections. (B, C, T) → same."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        self.input_proj = nn.Linear(config.latent_dim, config.hidden_size)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output_proj = nn.Linear(config.hidden_size, config.latent_dim)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        x = self.input_proj(x.transpose(1, 2))
        positions = self.positions(x, carried)
        for layer in self.layers:
            x = layer(x, positions, carried)
        return self.output_proj(self.norm(x)).transpose(1, 2)

    def positions(self, x: Tensor, carried: Carried | None = None) -> StreamPositions:
        """Find the frames of x, (B, T, D), in their streams."""
        return cast(TransformerLayer, self.layers[0]).self_attn.positions(x, carried)


class ConvNeXtBlock(nn.Module):
    """A causal depthwise convolution, a norm and two linears around a skip. (B, C, T) → same."""

    def __init__(self, channels: int):
        super().__init__()
        self.dwconv = CausalConv1d(channels, channels, KERNEL, groups=channels)
        self.norm = LayerNorm(channels, NORM_EPS)
        self.pwconv1 = nn.Linear(channels, EXPANSION * channels)
        self.pwconv2 = nn.Linear(EXPANSION * channels, channels)
        self.gamma = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        y = self.norm(self.dwconv(x, carried).transpose(1, 2))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        return x + y.transpose(1, 2)


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a skip. (B, C, T) → same."""

    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.act1 = LogSnake1d(channels)
        self.conv1 = CausalConv1d(channels, channels, KERNEL, dilation=dilation)
        self.act2 = LogSnake1d(channels)
        self.conv2 = CausalConv1d(channels, channels, 1)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        return x + self.conv2(self.act2(self.conv1(self.act1(x), carried)))


class DecoderBlock(nn.Module):
    """A transposed convolution that multiplies the rate, then residual units. (B, C, T) → (B, C/2, s·T)."""

    def __init__(self, channels: int, stride: int):
        super().__init__()
        inner = channels // 2
        self.block = nn.ModuleList(
            [
                LogSnake1d(channels),
                CausalConvTranspose1d(channels, inner, 2 * stride, stride),
                *(ResidualUnit(inner, dilation) for dilation in DILATIONS),
            ]
        )

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        return through(self.block, x, carried)


class Decoder(nn.Module):
    """Codes to samples."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        latent, width = config.latent_dim, config.decoder_dim
        self.hop_length = config.hop_length
        self.quantizer = SplitResidualVectorQuantizer(config.books)
        self.pre_conv = CausalConv1d(config.codebook_dim, latent, PRE_KERNEL)
        self.pre_transformer = Transformer(config)
        self.upsample = nn.ModuleList(
            nn.ModuleList([CausalConvTranspose1d(latent, latent, ratio, ratio), ConvNeXtBlock(latent)])
            for ratio in config.upsampling_ratios
        )
        layers: list[nn.Module] = [CausalConv1d(latent, width, KERNEL)]
        for rate in config.upsample_rates:
            layers.append(DecoderBlock(width, rate))
            width //= 2
        layers += [LogSnake1d(width), CausalConv1d(width, 1, KERNEL)]
        self.decoder = nn.ModuleList(layers)

    def forward(self, codes: Tensor, carried: Carried | None = None) -> Tensor:
        """Decode the next frames of streams. (B, Q, T) → (B, hop T), within ±1."""
        x = self.pre_conv(self.quantizer.decode(codes), carried)
        x = self.pre_transformer(x, carried)
        for layers in self.upsample:
            x = through(cast(nn.ModuleList, layers), x, carried)
        return through(self.decoder, x, carried)[:, 0].clamp(-1, 1)
