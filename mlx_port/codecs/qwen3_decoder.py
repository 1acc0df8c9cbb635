"""The decoder of Qwen3-TTS's codec: a windowed transformer over frames, then causal convolutions.

Upstream: QwenLM/Qwen3-TTS@022e286, Apache-2.0; parameter names are the published ones, with the entries of a
codebook computed.
No known difference.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx import nn

from mlx_port.codecs.encodec import CausalConvTranspose1d
from mlx_port.codecs.mimi import CausalConv1d, SplitResidualVectorQuantizer
from mlx_port.codecs.mimi_transformer import Attention, Kept, LayerScale, TransformerMemory
from mlx_port.layers.feed_forward import FeedForward
from mlx_port.layers.norm import LayerNorm, RMSNorm
from mlx_port.layers.rope import Rotation
from mlx_port.layers.snake import LogSnake1d
from tts_core.codecs.qwen3_codec import (
    DILATIONS,
    EXPANSION,
    KERNEL,
    NORM_EPS,
    PRE_KERNEL,
    Qwen3DecoderConfig,
    decode_tail,
)
from tts_core.nn.positions import rope_table


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

    def __call__(self, x: mx.array, rotation: Rotation, kept: Kept | None) -> tuple[mx.array, Kept]:
        y, last = self.self_attn(self.input_layernorm(x), rotation, kept)
        x = x + self.self_attn_layer_scale(y)
        return x + self.mlp_layer_scale(self.mlp(self.post_attention_layernorm(x))), last


class Transformer(nn.Module):
    """Layers over a stream of frames, between two projections. (B, T, C) → same."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        self.head_dim, self.theta = config.head_dim, config.rope_theta
        self.input_proj = nn.Linear(config.latent_dim, config.hidden_size)
        self.layers = [TransformerLayer(config) for _ in range(config.num_hidden_layers)]
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.output_proj = nn.Linear(config.hidden_size, config.latent_dim)

    def __call__(
        self, x: mx.array, memory: TransformerMemory | None = None, rotation: Rotation | None = None
    ) -> tuple[mx.array, TransformerMemory]:
        """Read a piece.

        memory: of the pieces before; None at the start of the stream.
        rotation: of the piece's steps; computed unless given.
        """
        x, kept = self.input_proj(x), []
        start = memory.length if memory else 0
        rotation = rotation or self.rotation(x, start)
        for i, layer in enumerate(self.layers):
            x, last = layer(x, rotation, memory.layers[i] if memory else None)
            kept.append(last)
        memory = TransformerMemory(start + x.shape[1], kept)
        return self.output_proj(self.norm(x)), memory

    def rotation(self, x: mx.array, start: int) -> Rotation:
        """Compute the tables of the frames of x, (B, T, D), which begins at frame `start`."""
        cos, sin = rope_table(x.shape[1], self.head_dim, self.theta, start=start)
        return mx.array(cos), mx.array(sin)


class ConvNeXtBlock(nn.Module):
    """A causal depthwise convolution, a norm and two linears around a skip. (B, T, C) → same."""

    def __init__(self, channels: int):
        super().__init__()
        self.dwconv = CausalConv1d(channels, channels, KERNEL, groups=channels)
        self.norm = LayerNorm(channels, NORM_EPS)
        self.pwconv1 = nn.Linear(channels, EXPANSION * channels)
        self.pwconv2 = nn.Linear(EXPANSION * channels, channels)
        self.gamma = mx.ones((channels,))

    def __call__(self, x: mx.array) -> mx.array:
        y = self.norm(self.dwconv(x))
        return x + self.gamma * self.pwconv2(nn.gelu(self.pwconv1(y)))


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a skip. (B, T, C) → same."""

    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.act1 = LogSnake1d(channels)
        self.conv1 = CausalConv1d(channels, channels, KERNEL, dilation=dilation)
        self.act2 = LogSnake1d(channels)
        self.conv2 = CausalConv1d(channels, channels, 1)

    def __call__(self, x: mx.array) -> mx.array:
        return x + self.conv2(self.act2(self.conv1(self.act1(x))))


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

    def __call__(self, x: mx.array) -> mx.array:
        for layer in self.block:
            x = layer(x)
        return x


class Qwen3DecoderMemory(NamedTuple):
    """State passed from one decoded piece to the next."""

    latents: mx.array  # the last inputs of the first convolution, (B, T, C)
    transformer: TransformerMemory
    frames: mx.array  # the last outputs of the transformer, (B, T, C)


class Decoder(nn.Module):
    """Codes to samples."""

    def __init__(self, config: Qwen3DecoderConfig):
        super().__init__()
        latent, width = config.latent_dim, config.decoder_dim
        self.hop_length, self.tail = config.hop_length, decode_tail(config)
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

    def __call__(
        self, codes: mx.array, memory: Qwen3DecoderMemory | None, rotation: Rotation | None = None
    ) -> tuple[mx.array, Qwen3DecoderMemory]:
        """Decode the next frames of a stream. (B, Q, T) → (B, hop T).

        memory: of the pieces before; None at the start.
        rotation: as the transformer's.
        """
        latents = self.quantizer.decode(codes)
        latents = mx.concatenate([memory.latents, latents], axis=1) if memory else latents
        x = self.pre_conv(latents)[:, latents.shape[1] - codes.shape[2] :]
        x, transformer = self.pre_transformer(x, memory and memory.transformer, rotation)
        frames = mx.concatenate([memory.frames, x], axis=1) if memory else x
        samples = self.convolve(frames)[:, (frames.shape[1] - x.shape[1]) * self.hop_length :]
        kept = latents[:, max(0, latents.shape[1] - (PRE_KERNEL - 1)) :]
        last = frames[:, max(0, frames.shape[1] - self.tail) :]
        return samples, Qwen3DecoderMemory(kept, transformer, last)

    def convolve(self, x: mx.array) -> mx.array:
        """Run the convolutions after the transformer. (B, T, C) → (B, hop T), within ±1."""
        for layers in self.upsample:
            for layer in layers:
                x = layer(x)
        for layer in self.decoder:
            x = layer(x)
        return mx.clip(x[..., 0], -1, 1)
