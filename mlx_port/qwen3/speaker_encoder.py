"""Qwen3-TTS's speaker encoder: a vector of the voice of a recording.

Paper: Desplanques et al. 2020, "ECAPA-TDNN", arXiv:2005.07143. Upstream: QwenLM/Qwen3-TTS@022e286,
Apache-2.0; parameter names are the published ones.
No known difference.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.host import Host
from mlx_port.layers.conv import Conv1d
from tts_core.qwen3.speaker import SpeakerConfig, mel

LEAST_VARIANCE = 1e-12


class TDNN(nn.Module):
    """A convolution of a reflected signal, and a ReLU. (B, T, C) → (B, T, C')."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1, dilation: int = 1):
        super().__init__()
        self.padding = (kernel_size - 1) * dilation // 2
        self.conv = Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def __call__(self, x: mx.array) -> mx.array:
        return nn.relu(self.conv(reflected(x, self.padding)))


def reflected(x: mx.array, padding: int) -> mx.array:
    """Reflect both ends of time. (B, T, C) → (B, T + 2 padding, C)."""
    if not padding:
        return x
    length = x.shape[1]
    before, after = x[:, 1 : padding + 1], x[:, length - padding - 1 : length - 1]
    return mx.concatenate([before[:, ::-1], x, after[:, ::-1]], axis=1)


class Res2NetBlock(nn.Module):
    """Groups of channels, each convolved together with the output of the one before. (B, T, C) → same."""

    def __init__(self, channels: int, scale: int, kernel_size: int, dilation: int):
        super().__init__()
        self.scale, width = scale, channels // scale
        self.blocks = [TDNN(width, width, kernel_size, dilation) for _ in range(scale - 1)]

    def __call__(self, x: mx.array) -> mx.array:
        groups = mx.split(x, self.scale, axis=-1)
        outputs = [groups[0]]
        for j, block in enumerate(self.blocks):
            outputs.append(block(groups[j + 1] + outputs[-1] if j else groups[1]))
        return mx.concatenate(outputs, axis=-1)


class SqueezeExcitation(nn.Module):
    """Factors of the channels, from their means over time. (B, T, C) → same."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.conv1 = Conv1d(channels, inner, 1)
        self.conv2 = Conv1d(inner, channels, 1)

    def __call__(self, x: mx.array) -> mx.array:
        mean = x.mean(axis=1, keepdims=True)
        return x * mx.sigmoid(self.conv2(nn.relu(self.conv1(mean))))


class SERes2NetBlock(nn.Module):
    """Convolutions of groups between two of all channels, around a skip. (B, T, C) → same."""

    def __init__(self, config: SpeakerConfig, kernel_size: int, dilation: int):
        super().__init__()
        width = config.enc_channels[0]
        self.tdnn1 = TDNN(width, width)
        self.res2net_block = Res2NetBlock(width, config.enc_res2net_scale, kernel_size, dilation)
        self.tdnn2 = TDNN(width, width)
        self.se_block = SqueezeExcitation(width, config.enc_se_channels)

    def __call__(self, x: mx.array) -> mx.array:
        return x + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))


class AttentiveStatistics(nn.Module):
    """Mean and deviation over time, weighted by attention. (B, T, C) → (B, 1, 2C)."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.tdnn = TDNN(3 * channels, inner)
        self.conv = Conv1d(inner, channels, 1)

    def __call__(self, x: mx.array) -> mx.array:
        even = mx.full(x.shape, 1 / x.shape[1], x.dtype)
        context = [mx.broadcast_to(part, x.shape) for part in self.statistics(x, even)]
        scores = self.conv(mx.tanh(self.tdnn(mx.concatenate([x, *context], axis=-1))))
        return mx.concatenate([*self.statistics(x, mx.softmax(scores, axis=1))], axis=-1)

    def statistics(self, x: mx.array, weights: mx.array) -> tuple[mx.array, mx.array]:
        """Compute weighted mean and deviation. (B, T, C) twice → (B, 1, C) each."""
        mean = (weights * x).sum(axis=1, keepdims=True)
        variance = (weights * (x - mean).square()).sum(axis=1, keepdims=True)
        return mean, mx.sqrt(mx.maximum(variance, LEAST_VARIANCE))


class SpeakerEncoder(nn.Module):
    """Mel frames to a vector. (B, T, mel_dim) → (B, D)."""

    def __init__(self, config: SpeakerConfig):
        super().__init__()
        self.config = config
        channels, sizes = (
            config.enc_channels,
            list(zip(config.enc_kernel_sizes, config.enc_dilations, strict=True)),
        )
        blocks: list[nn.Module] = [TDNN(config.mel_dim, channels[0], *sizes[0])]
        blocks += [SERes2NetBlock(config, *size) for size in sizes[1:-1]]
        self.blocks = blocks
        self.mfa = TDNN(channels[-1], channels[-1], *sizes[-1])
        self.asp = AttentiveStatistics(channels[-1], config.enc_attention_channels)
        self.fc = Conv1d(2 * channels[-1], config.enc_dim, 1)

    def __call__(self, frames: mx.array) -> mx.array:
        x, outputs = frames, []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = self.mfa(mx.concatenate(outputs[1:], axis=-1))
        return self.fc(self.asp(x))[:, 0]

    def embed(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the config's rate, as a vector, (D,) float32."""
        host = Host(self.fc)
        return host.to_host(self(host.to_device(mel(samples, self.config)[None])))[0]
