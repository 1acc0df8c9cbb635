"""Descript Audio Codec: residual vector quantization of 1-D convolutional latents.

Paper: Kumar et al. 2023, arXiv 2306.06546. Upstream: descriptinc/descript-audio-codec 1.0.0 dac/model/dac.py,
MIT; parameter names are those of transformers' DacModel, weight norm folded.
Differs from upstream: encode and decode run in windows with exact context. No loudness step, no trimming.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.kernels.sine import sine_squared
from mlx_port.layers.carried import States, StreamState
from mlx_port.layers.conv import Conv1d, ConvTranspose1d
from mlx_port.layers.delayed import Delayed
from tts_core.codecs.dac import DILATIONS, DacConfig, decode_window, decoded_length, encode_window
from tts_core.codecs.policy import DEFAULT, CodecPolicy


class Snake1d(nn.Module):
    """x + sin²(αx)/α. (B, T, C) → same."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = mx.ones((1, 1, channels))

    def __call__(self, x: mx.array) -> mx.array:
        a = self.alpha
        return x + mx.reciprocal(a + 1e-9) * sine_squared(a * x)


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a skip. (B, T, C) → same."""

    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.snake1 = Snake1d(channels)
        self.conv1 = Conv1d(channels, channels, 7, dilation=dilation, padding=3 * dilation)
        self.snake2 = Snake1d(channels)
        self.conv2 = Conv1d(channels, channels, 1)

    def __call__(self, x: mx.array, carried: Delayed | None = None) -> mx.array:
        if carried is None:
            return x + self.conv2(self.snake2(self.conv1(self.snake1(x))))
        y = self.conv2(self.snake2(carried.convolved(self.snake1(x), self.conv1)))
        return carried.inside(carried.delayed(x, self.conv1) + y)


class EncoderBlock(nn.Module):
    """Residual units, then a convolution that divides the rate by `stride`.

    (B, T, C) → (B, T/stride, 2C).
    """

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.res_unit1 = ResidualUnit(channels, DILATIONS[0])
        self.res_unit2 = ResidualUnit(channels, DILATIONS[1])
        self.res_unit3 = ResidualUnit(channels, DILATIONS[2])
        self.snake1 = Snake1d(channels)
        self.conv1 = Conv1d(channels, 2 * channels, 2 * stride, stride=stride, padding=math.ceil(stride / 2))

    def __call__(self, x: mx.array) -> mx.array:
        x = self.res_unit3(self.res_unit2(self.res_unit1(x)))
        return self.conv1(self.snake1(x))


class Encoder(nn.Module):
    """Samples to latents. (B, L, 1) → (B, T, C)."""

    def __init__(self, config: DacConfig):
        super().__init__()
        width = config.encoder_hidden_size
        self.conv1 = Conv1d(1, width, 7, padding=3)
        self.block = [
            EncoderBlock(width * 2**i, stride) for i, stride in enumerate(config.downsampling_ratios)
        ]
        self.snake1 = Snake1d(config.encoder_width)
        self.conv2 = Conv1d(config.encoder_width, config.hidden_size, 3, padding=1)

    def __call__(self, x: mx.array) -> mx.array:
        x = self.conv1(x)
        for block in self.block:
            x = block(x)
        return self.conv2(self.snake1(x))


class DecoderBlock(nn.Module):
    """A transposed convolution that raises the rate, then residual units. (B, T, C) → (B, stride·T, C/2)."""

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.snake1 = Snake1d(channels)
        self.conv_t1 = ConvTranspose1d(
            channels, channels // 2, 2 * stride, stride=stride, padding=math.ceil(stride / 2)
        )
        self.res_unit1 = ResidualUnit(channels // 2, DILATIONS[0])
        self.res_unit2 = ResidualUnit(channels // 2, DILATIONS[1])
        self.res_unit3 = ResidualUnit(channels // 2, DILATIONS[2])

    def __call__(self, x: mx.array, carried: Delayed | None = None) -> mx.array:
        x = self.snake1(x)
        x = self.conv_t1(x) if carried is None else carried.inside(carried.raised(x, self.conv_t1))
        return self.res_unit3(self.res_unit2(self.res_unit1(x, carried), carried), carried)


class Decoder(nn.Module):
    """Latents to samples in [-1, 1]. (B, T, C) → (B, L, 1)."""

    def __init__(self, config: DacConfig):
        super().__init__()
        width = config.decoder_hidden_size
        self.conv1 = Conv1d(config.hidden_size, width, 7, padding=3)
        self.block = [
            DecoderBlock(width // 2**i, stride) for i, stride in enumerate(config.upsampling_ratios)
        ]
        self.snake1 = Snake1d(width // 2 ** len(config.upsampling_ratios))
        self.conv2 = Conv1d(width // 2 ** len(config.upsampling_ratios), 1, 7, padding=3)

    def __call__(self, x: mx.array, carried: Delayed | None = None) -> mx.array:
        if carried is None:
            x = self.conv1(x)
        else:
            x = carried.inside(carried.convolved(carried.inside(x), self.conv1))
        for block in self.block:
            x = block(x, carried)
        x = self.snake1(x)
        return mx.tanh(self.conv2(x) if carried is None else carried.convolved(x, self.conv2))


class VectorQuantizer(nn.Module):
    """One codebook, searched by cosine in a narrow projection of the latents."""

    def __init__(self, width: int, codebook_size: int, codebook_dim: int):
        super().__init__()
        self.in_proj = Conv1d(width, codebook_dim, 1)
        self.out_proj = Conv1d(codebook_dim, width, 1)
        self.codebook = nn.Embedding(codebook_size, codebook_dim)

    def encode(self, latents: mx.array) -> mx.array:
        """Find the nearest entries, the first of equal ones. (B, T, C) → (B, T) int32."""
        encodings = _normalize(self.in_proj(latents))  # (B, T, E)
        entries = _normalize(self.codebook.weight)
        distance = (
            encodings.square().sum(-1, keepdims=True) - 2 * encodings @ entries.T + entries.square().sum(-1)
        )
        return distance.argmin(-1).astype(mx.int32)

    def decode(self, codes: mx.array) -> mx.array:
        """Look up entries and project them back. (B, T) → (B, T, C)."""
        return self.out_proj(self.codebook(codes))


class ResidualVectorQuantizer(nn.Module):
    """Residual quantization: each codebook encodes the residual of those before it."""

    def __init__(self, config: DacConfig):
        super().__init__()
        self.quantizers = [
            VectorQuantizer(config.hidden_size, config.codebook_size, dim) for dim in config.codebook_dim
        ]

    def encode(self, latents: mx.array) -> mx.array:
        """Encode latents. (B, T, C) → codes (B, Q, T) int32."""
        codes = []
        for quantizer in self.quantizers:
            codes.append(quantizer.encode(latents))
            latents = latents - quantizer.decode(codes[-1])
        return mx.stack(codes, axis=1)

    def decode(self, codes: mx.array) -> mx.array:
        """Sum the entries of codes. (B, q, T) with q ≤ Q → (B, T, C)."""
        parts = [
            quantizer.decode(codes[:, q]) for q, quantizer in enumerate(self.quantizers[: codes.shape[1]])
        ]
        return mx.stack(parts).sum(axis=0)


class Dac(nn.Module):
    """The whole codec. Public methods take and return samples (B, L) and codes (B, Q, T).

    policy: window sizes; it may be replaced at any time.
    """

    def __init__(self, config: DacConfig, policy: CodecPolicy = DEFAULT):
        super().__init__()
        self.config, self.policy = config, policy
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.n_codebooks = config.n_codebooks
        self.encoder = Encoder(config)
        self.quantizer = ResidualVectorQuantizer(config)
        self.decoder = Decoder(config)

    def encode(self, samples: mx.array | np.ndarray) -> mx.array:
        """Encode a waveform, zero-padded on the right to whole frames.

        (B, L) array → (B, Q, ceil(L / hop)) int32.
        """
        samples = mx.array(samples).astype(self.decoder.conv2.weight.dtype)
        frames = -(-samples.shape[1] // self.hop_length)
        samples = mx.pad(samples, [(0, 0), (0, frames * self.hop_length - samples.shape[1])])
        pieces = [self._encode_frames(samples, start, stop) for start, stop in self.policy.even_cuts(frames)]
        empty = mx.zeros((samples.shape[0], self.n_codebooks, 0), dtype=mx.int32)
        return mx.concatenate([empty, *pieces], axis=2)

    def _encode_frames(self, samples: mx.array, start: int, stop: int) -> mx.array:
        window = encode_window(self.config, start, stop, samples.shape[1] // self.hop_length)
        latents = self.encoder(
            samples[:, window.first * self.hop_length : window.last * self.hop_length, None]
        )
        return self.quantizer.encode(latents[:, start - window.first : stop - window.first])

    def decode(self, codes: mx.array | np.ndarray) -> mx.array:
        """Decode codes to a waveform, window by window.

        (B, q, T) array, q ≤ Q → (B, L), L from `decoded_length`.
        """
        codes = mx.array(codes)
        cuts = self.policy.decode_cuts(codes.shape[2])
        pieces = [self.decode_frames(codes, start, stop) for start, stop in cuts]
        return mx.concatenate([self._silence(codes.shape[0]), *pieces], axis=1)

    def decode_frames(self, codes: mx.array, start: int, stop: int) -> mx.array:
        """Decode frames [start, stop) to samples that equal the same part of a whole decode.

        codes: (B, q, T), up to the end, or at least `tts_core.codecs.dac.decode_lookahead` frames past
        `stop`.
        """
        total = codes.shape[2]
        window = decode_window(self.config, start, stop, total)
        audio = self.decode_whole(codes[:, :, window.first : window.last])
        last = decoded_length(self.config, total) if stop == total else stop * self.hop_length
        offset = window.first * self.hop_length
        return audio[:, start * self.hop_length - offset : last - offset]

    def decode_whole(self, codes: mx.array) -> mx.array:
        """Decode codes without windows. (B, q, T) → (B, L)."""
        return self.decoder(self.quantizer.decode(codes))[..., 0]

    def decode_window(
        self, codes: mx.array | np.ndarray, states: States | None, ends: Sequence[int | None] | None = None
    ) -> tuple[mx.array, list[StreamState]]:
        """Decode the next frames of streams, whose samples come `tts_core.codecs.dac.delay` late.

        codes: (B, q, T), after the end any → (B, hop T).
        states: after the pieces before; None at the start.
        ends: frames of each stream; None while they are not known: no frame is after the end.
        """
        carried = Delayed(states, ends)
        samples = self.decoder(self.quantizer.decode(mx.array(codes)), carried)[..., 0]
        after = carried.after(codes.shape[2])
        mx.eval(samples, after)  # else the state would keep all that it is cut from
        return samples, after

    def _silence(self, batch: int) -> mx.array:
        return mx.zeros((batch, 0), dtype=self.decoder.conv2.weight.dtype)


def _normalize(x: mx.array) -> mx.array:
    """Compute x / max(|x|, 1e-12) over the last axis."""
    return x / mx.maximum(mx.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
