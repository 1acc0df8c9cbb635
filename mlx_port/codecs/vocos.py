"""Vocos: from EnCodec's codes to a waveform, through a spectrum and its inverse transform.

Paper: Siuzdak 2023, arXiv 2306.00814. Upstream: gemelo-ai/vocos 0.1.0, MIT; parameter names are the published
ones.
Differs from upstream: decode runs in windows with exact context; the inverse transform is a product with its
matrix.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.layers.conv import Conv1d
from mlx_port.layers.istft import InverseSTFT
from mlx_port.layers.norm import LayerNorm
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import (
    KERNEL,
    LARGEST_MAGNITUDE,
    NORM_EPS,
    VocosConfig,
    check_request,
    decode_window,
)

WINDOWS = CodecPolicy(1024)  # a narrow network at one rate: a frame needs little memory


class EncodecFeatures(nn.Module):
    """Sum of the codebooks' entries of codes. (B, q, T) with q ≤ Q → (B, T, C)."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        self.codebook_size = config.codebook_size
        self.codebook_weights = mx.zeros((config.n_codebooks * config.codebook_size, config.input_channels))

    def __call__(self, codes: mx.array) -> mx.array:
        books = mx.arange(codes.shape[1], dtype=mx.int32)[:, None]
        return self.codebook_weights[codes + books * self.codebook_size].sum(axis=1)


class AdaptiveLayerNorm(nn.Module):
    """Layer norm with a gain and offset per bandwidth. (B, T, D) → same."""

    def __init__(self, num_bandwidths: int, width: int):
        super().__init__()
        self.scale = nn.Embedding(num_bandwidths, width)
        self.shift = nn.Embedding(num_bandwidths, width)

    def __call__(self, x: mx.array, bandwidth_id: int) -> mx.array:
        wide = mx.fast.layer_norm(x.astype(mx.float32), None, None, NORM_EPS)
        return (wide * self.scale.weight[bandwidth_id] + self.shift.weight[bandwidth_id]).astype(x.dtype)


class ConvNeXtBlock(nn.Module):
    """A convolution in time, then two layers in width, around a skip. (B, T, D) → same."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        width = config.dim
        self.dwconv = Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.norm = AdaptiveLayerNorm(config.num_bandwidths, width)
        self.pwconv1 = nn.Linear(width, config.intermediate_dim)
        self.pwconv2 = nn.Linear(config.intermediate_dim, width)
        self.gamma = mx.ones((width,))

    def __call__(self, x: mx.array, bandwidth_id: int) -> mx.array:
        y = self.dwconv(x)
        y = nn.gelu(self.pwconv1(self.norm(y, bandwidth_id)))
        return x + self.gamma * self.pwconv2(y)


class Backbone(nn.Module):
    """Convolution, norm and blocks. (B, T, C) → (B, T, D)."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        self.embed = Conv1d(config.input_channels, config.dim, KERNEL, padding=KERNEL // 2)
        self.norm = AdaptiveLayerNorm(config.num_bandwidths, config.dim)
        self.convnext = [ConvNeXtBlock(config) for _ in range(config.num_layers)]
        self.final_layer_norm = LayerNorm(config.dim, NORM_EPS)

    def __call__(self, x: mx.array, bandwidth_id: int) -> mx.array:
        x = self.norm(self.embed(x), bandwidth_id)
        for block in self.convnext:
            x = block(x, bandwidth_id)
        return self.final_layer_norm(x)


class ISTFTHead(nn.Module):
    """Log magnitudes and phases, and their inverse transform. (B, T, D) → samples (B, L)."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        self.out = nn.Linear(config.dim, 2 * config.n_bins)
        self.istft = InverseSTFT(config.n_fft, config.hop_length)

    def __call__(self, x: mx.array) -> mx.array:
        log_magnitude, phase = mx.split(self.out(x).astype(mx.float32), 2, axis=-1)  # (B, T, bins)
        magnitude = mx.minimum(mx.exp(log_magnitude), LARGEST_MAGNITUDE)
        return self.istft(magnitude * mx.cos(phase), magnitude * mx.sin(phase))


class Vocos(nn.Module):
    """The whole vocoder. Public methods take codes (B, q, T) and return samples (B, L) float32.

    policy: window sizes; it may be replaced at any time.
    """

    def __init__(self, config: VocosConfig, policy: CodecPolicy = WINDOWS):
        super().__init__()
        self.config, self.policy = config, policy
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.feature_extractor = EncodecFeatures(config)
        self.backbone = Backbone(config)
        self.head = ISTFTHead(config)

    def decode(self, codes: mx.array | np.ndarray, bandwidth_id: int) -> mx.array:
        """Decode codes to a waveform, window by window.

        (B, q, T) array, q ≤ Q → (B, hop T).  bandwidth_id: index of the norms' bandwidth (1.5,
        3, 6 and 12 kbps in the published model).  Raises UsageError for one that the model does not have, and
        for too many codebooks.
        """
        codes = mx.array(codes)
        pieces = [mx.zeros((codes.shape[0], 0))]
        for start, stop in self.policy.even_cuts(codes.shape[2]):
            pieces.append(self.decode_frames(codes, start, stop, bandwidth_id))
            mx.eval(pieces[-1])  # free its memory before the next window
        return mx.concatenate(pieces, axis=1)

    def decode_frames(self, codes: mx.array, start: int, stop: int, bandwidth_id: int) -> mx.array:
        """Decode frames [start, stop) to samples that equal the same part of a whole decode.

        codes: (B, q, T), up to the end, or at least `tts_core.codecs.vocos.decode_lookahead` frames past
        `stop`.
        """
        check_request(self.config, codes.shape[1], bandwidth_id)
        window = decode_window(self.config, start, stop, codes.shape[2])
        x = self.feature_extractor(codes[:, :, window.first : window.last])
        audio = self.head(self.backbone(x, bandwidth_id))
        return audio[:, (start - window.first) * self.hop_length : (stop - window.first) * self.hop_length]
