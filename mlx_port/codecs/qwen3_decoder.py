"""The decoder of Qwen3-TTS's codec: a windowed transformer over frames, then causal convolutions.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones, with the entries of a
codebook computed.
No known difference.
"""

from __future__ import annotations

import mlx.core as mx
from mlx import nn

from mlx_port.codecs.encodec import CausalConvTranspose1d
from mlx_port.codecs.mimi import CausalConv1d, SplitResidualVectorQuantizer, through
from mlx_port.codecs.mimi_transformer import Attention, LayerScale
from mlx_port.layers.carried import Carried, StreamPositions
from mlx_port.layers.feed_forward import FeedForward
from mlx_port.layers.norm import LayerNorm, RMSNorm
from mlx_port.layers.snake import LogSnake1d
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

    def __call__(self, x: mx.array, positions: StreamPositions, carried: Carried | None = None) -> mx.array:
        x = x + self.self_attn_layer_scale(self.self_attn(self.input_layernorm(x), positions, carried))
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x)))


class Transformer(nn.Module):
    """Layers over a stream of frames, between two projections. (B, T, C) → same."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        self.input_proj = nn.Linear(config.latent_dim, config.hidden_size)
        self.layers = [TransformerLayer(config) for _ in range(config.num_hidden_layers)]
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output_proj = nn.Linear(config.hidden_size, config.latent_dim)

    def __call__(self, x: mx.array, carried: Carried | None = None) -> mx.array:
        x = self.input_proj(x)
        positions = self.positions(x, carried)
        for layer in self.layers:
            x = layer(x, positions, carried)
        return self.output_proj(self.norm(x))

    def positions(self, x: mx.array, carried: Carried | None = None) -> StreamPositions:
        """Find the frames of x, (B, T, D), in their streams."""
        return self.layers[0].self_attn.positions(x, carried)


class ConvNeXtBlock(nn.Module):
    """A causal depthwise convolution, a norm and two linears around a skip. (B, T, C) → same."""

    def __init__(self, channels: int):
        super().__init__()
        self.dwconv = CausalConv1d(channels, channels, KERNEL, groups=channels)
        self.norm = LayerNorm(channels, NORM_EPS)
        self.pwconv1 = nn.Linear(channels, EXPANSION * channels)
        self.pwconv2 = nn.Linear(EXPANSION * channels, channels)
        self.gamma = mx.ones((channels,))

    def __call__(self, x: mx.array, carried: Carried | None = None) -> mx.array:
        y = self.norm(self.dwconv(x, carried))
        return x + self.gamma * self.pwconv2(nn.gelu(self.pwconv1(y)))


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a skip. (B, T, C) → same."""

    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.act1 = LogSnake1d(channels)
        self.conv1 = CausalConv1d(channels, channels, KERNEL, dilation=dilation)
        self.act2 = LogSnake1d(channels)
        self.conv2 = CausalConv1d(channels, channels, 1)

    def __call__(self, x: mx.array, carried: Carried | None = None) -> mx.array:
        return x + self.conv2(self.act2(self.conv1(self.act1(x), carried)))


class DecoderBlock(nn.Module):
    """A transposed convolution that multiplies the rate, then residual units. (B, T, C) → (B, s·T, C/2)."""

    def __init__(self, channels: int, stride: int):
        super().__init__()
        inner = channels // 2
        self.block = [
            LogSnake1d(channels),
            CausalConvTranspose1d(channels, inner, 2 * stride, stride),
            *(ResidualUnit(inner, dilation) for dilation in DILATIONS),
        ]

    def __call__(self, x: mx.array, carried: Carried | None = None) -> mx.array:
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
        self.upsample = [
            [CausalConvTranspose1d(latent, latent, ratio, ratio), ConvNeXtBlock(latent)]
            for ratio in config.upsampling_ratios
        ]
        layers: list[nn.Module] = [CausalConv1d(latent, width, KERNEL)]
        for rate in config.upsample_rates:
            layers.append(DecoderBlock(width, rate))
            width //= 2
        layers += [LogSnake1d(width), CausalConv1d(width, 1, KERNEL)]
        self.decoder = layers

    def __call__(self, codes: mx.array, carried: Carried | None = None) -> mx.array:
        """Decode the next frames of streams. (B, Q, T) → (B, hop T), within ±1."""
        x = self.pre_conv(self.quantizer.decode(codes), carried)
        x = self.pre_transformer(x, carried)
        for layers in self.upsample:
            x = through(layers, x, carried)
        return mx.clip(through(self.decoder, x, carried)[..., 0], -1, 1)
