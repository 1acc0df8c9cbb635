"""EnCodec: residual vector quantization of causal convolutional and recurrent latents.

Paper: Défossez et al. 2022, arXiv 2210.13438. Upstream: facebookresearch/encodec 0.1.1, MIT; parameter names
are those of transformers' EncodecModel, weight norm folded.
Differs from upstream: encode and decode run in windows with exact context, with the LSTM's state passed on.
Only the causal mono model: no loudness step, no chunks.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.layers.carried import Carried
from mlx_port.layers.conv import Conv1d, ConvTranspose1d, conv_transpose1d
from mlx_port.layers.lstm import LSTM, LSTMState
from tts_core.codecs.encodec import (
    EncodecConfig,
    check_codebooks,
    decode_tail,
    decode_windows,
    encode_tail,
    encode_windows,
)
from tts_core.codecs.policy import DEFAULT, CodecPolicy


class CausalConv1d(nn.Module):
    """A causal convolution of a signal mirrored at its ends. (B, T, C) → (B, ceil(T/s), C')."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__()
        self.stride, self.padding = stride, kernel_size - stride
        self.conv = Conv1d(in_channels, out_channels, kernel_size, stride=stride)

    def __call__(self, x: mx.array) -> mx.array:
        return self.conv(mirrored(x, self.padding, -x.shape[1] % self.stride))


class CausalConvTranspose1d(nn.Module):
    """A transposed convolution without its last, incomplete samples. (B, T, C) → (B, s·T, C')."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int):
        super().__init__()
        self.stride, self.overlap = stride, kernel_size - stride
        self.conv = ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride)

    def __call__(self, x: mx.array, carried: Carried | None = None) -> mx.array:
        if not (carried and self.overlap):
            return self.conv(x)[:, : x.shape[1] * self.stride]
        y = carried.added(conv_transpose1d(x, self.conv.weight, None, self.stride), self.overlap)
        return y + self.conv.bias


class ResidualBlock(nn.Module):
    """Two convolutions with a narrow middle, plus a third as shortcut. (B, T, C) → same."""

    def __init__(self, channels: int, kernel_size: int, compress: int):
        super().__init__()
        inner = channels // compress
        self.block = [
            nn.ELU(),
            CausalConv1d(channels, inner, kernel_size),
            nn.ELU(),
            CausalConv1d(inner, channels, 1),
        ]
        self.shortcut = CausalConv1d(channels, channels, 1)

    def __call__(self, x: mx.array) -> mx.array:
        y = x
        for layer in self.block:
            y = layer(y)
        return self.shortcut(x) + y


class RecurrentBlock(nn.Module):
    """LSTM layers with a skip connection. (B, T, C) and a state → same, and the next state."""

    def __init__(self, channels: int, num_layers: int):
        super().__init__()
        self.lstm = LSTM(channels, channels, num_layers)

    def __call__(self, x: mx.array, state: LSTMState | None = None) -> tuple[mx.array, LSTMState]:
        y, after = self.lstm(x, state)
        return x + y, after


class EncodecMemory(NamedTuple):
    """State passed from one window to the next: the last outputs of the LSTM, and its state."""

    frames: mx.array  # (B, T, C)
    state: LSTMState


class CausalStack(nn.Module):
    """Causal convolutions, an LSTM, causal convolutions, over a whole signal or in windows."""

    def __init__(self, before: list[nn.Module], recurrent: RecurrentBlock, after: list[nn.Module]):
        super().__init__()
        self.middle = len(before)
        self.layers = [*before, recurrent, *after]

    def __call__(self, x: mx.array) -> mx.array:
        return self.window(x, 0, None, 0)[0]

    def window(
        self, x: mx.array, context: int, memory: EncodecMemory | None, tail: int
    ) -> tuple[mx.array, EncodecMemory]:
        """Compute the outputs for one window, and the memory for the next one.

        x: (B, T, C), whose first `context` frames are only for the convolutions before the LSTM.
        memory: None at the signal's start.
        tail: frames that the convolutions after the LSTM look back.
        """
        for layer in self.layers[: self.middle]:
            x = layer(x)
        x, state = self.layers[self.middle](x[:, context:], memory and memory.state)
        known = mx.concatenate([memory.frames, x], axis=1) if memory else x
        y = known
        for layer in self.layers[self.middle + 1 :]:
            y = layer(y)
        new = y.shape[1] // known.shape[1] * x.shape[1]
        return y[:, y.shape[1] - new :], EncodecMemory(known[:, max(0, known.shape[1] - tail) :], state)


class Encoder(CausalStack):
    """Samples to latents. (B, L, 1) → (B, T, C)."""

    def __init__(self, config: EncodecConfig):
        width = config.num_filters
        before: list[nn.Module] = [CausalConv1d(1, width, config.kernel_size)]
        for stride in config.upsampling_ratios[::-1]:
            before += [
                ResidualBlock(width, config.residual_kernel_size, config.compress),
                nn.ELU(),
                CausalConv1d(width, 2 * width, 2 * stride, stride),
            ]
            width *= 2
        last = CausalConv1d(width, config.hidden_size, config.last_kernel_size)
        super().__init__(before, RecurrentBlock(width, config.num_lstm_layers), [nn.ELU(), last])


class Decoder(CausalStack):
    """Latents to samples. (B, T, C) → (B, L, 1)."""

    def __init__(self, config: EncodecConfig):
        width = config.width
        first = CausalConv1d(config.hidden_size, width, config.kernel_size)
        recurrent = RecurrentBlock(width, config.num_lstm_layers)
        after: list[nn.Module] = []
        for stride in config.upsampling_ratios:
            after += [
                nn.ELU(),
                CausalConvTranspose1d(width, width // 2, 2 * stride, stride),
                ResidualBlock(width // 2, config.residual_kernel_size, config.compress),
            ]
            width //= 2
        after += [nn.ELU(), CausalConv1d(width, 1, config.last_kernel_size)]
        super().__init__([first], recurrent, after)


class Codebook(nn.Module):
    """Codebook entries, to which latents are compared."""

    def __init__(self, codebook_size: int, width: int):
        super().__init__()
        self.embed = mx.zeros((codebook_size, width))


class VectorQuantizer(nn.Module):
    """One codebook, searched by distance."""

    def __init__(self, codebook_size: int, width: int):
        super().__init__()
        self.codebook = Codebook(codebook_size, width)

    def encode(self, latents: mx.array) -> mx.array:
        """Find the nearest entries, the first of equal ones. (B, T, C) → (B, T) int32."""
        entries = self.codebook.embed
        distance = (
            latents.square().sum(-1, keepdims=True) - 2 * latents @ entries.T + entries.square().sum(-1)
        )
        return distance.argmin(-1).astype(mx.int32)

    def decode(self, codes: mx.array) -> mx.array:
        """Look up entries. (B, T) → (B, T, C)."""
        return self.codebook.embed[codes]


class ResidualVectorQuantizer(nn.Module):
    """Residual quantization: each codebook encodes the residual of those before it."""

    def __init__(self, config: EncodecConfig):
        super().__init__()
        self.layers = [
            VectorQuantizer(config.codebook_size, config.hidden_size) for _ in range(config.n_codebooks)
        ]

    def encode(self, latents: mx.array, n_codebooks: int) -> mx.array:
        """Encode latents. (B, T, C) → codes (B, n_codebooks, T) int32."""
        rest, codes = latents, []
        for quantizer in self.layers[:n_codebooks]:
            codes.append(quantizer.encode(rest))
            rest = rest - quantizer.decode(codes[-1])
        return mx.stack(codes, axis=1)

    def decode(self, codes: mx.array) -> mx.array:
        """Sum the entries of codes. (B, q, T) with q ≤ Q → (B, T, C)."""
        parts = [self.layers[q].decode(codes[:, q]) for q in range(codes.shape[1])]
        return mx.stack(parts).sum(axis=0)


class Encodec(nn.Module):
    """The whole codec. Public methods take and return samples (B, L) and codes (B, Q, T).

    policy: window sizes; it may be replaced at any time.
    """

    def __init__(self, config: EncodecConfig, policy: CodecPolicy = DEFAULT):
        super().__init__()
        self.config, self.policy = config, policy
        self.sample_rate, self.hop_length = config.sample_rate, config.hop_length
        self.n_codebooks = config.n_codebooks
        self.encoder = Encoder(config)
        self.quantizer = ResidualVectorQuantizer(config)
        self.decoder = Decoder(config)

    def encode(self, samples: mx.array | np.ndarray, n_codebooks: int) -> mx.array:
        """Encode a waveform, window by window.

        (B, L) array → (B, n_codebooks, ceil(L / hop)) int32. Raises UsageError for a number of
        codebooks that the model does not have.
        """
        check_codebooks(self.config, n_codebooks)
        samples = mx.array(samples).astype(self.quantizer.layers[0].codebook.embed.dtype)
        hop, memory = self.hop_length, None
        pieces = [mx.zeros((samples.shape[0], n_codebooks, 0), mx.int32)]
        for window in encode_windows(self.config, -(-samples.shape[1] // hop), self.policy.max_frames):
            section = samples[:, window.first * hop : window.stop * hop, None]
            context = window.start - window.first
            latents, memory = self.encoder.window(section, context, memory, encode_tail(self.config))
            pieces.append(self.quantizer.encode(latents, n_codebooks))
            mx.eval(pieces[-1], memory)  # else thousands of steps stay in one graph
        return mx.concatenate(pieces, axis=2)

    def latents(self, codes: np.ndarray) -> mx.array:
        """Sum the entries of codes. (B, q, F) → (B, C, F)."""
        return self.quantizer.decode(mx.array(codes)).swapaxes(1, 2)

    def decode(self, codes: mx.array | np.ndarray) -> mx.array:
        """Decode codes to a waveform, window by window.

        (B, q, T) array, q ≤ Q → (B, hop T). Raises UsageError for more codebooks than the model
        has.
        """
        codes, memory = mx.array(codes), None
        check_codebooks(self.config, codes.shape[1])
        pieces = [mx.zeros((codes.shape[0], 0), self.quantizer.layers[0].codebook.embed.dtype)]
        for window in decode_windows(self.config, codes.shape[2], self.policy.max_frames):
            latents = self.quantizer.decode(codes[:, :, window.first : window.stop])
            context = window.start - window.first
            audio, memory = self.decoder.window(latents, context, memory, decode_tail(self.config))
            pieces.append(audio[..., 0])
            mx.eval(pieces[-1], memory)
        return mx.concatenate(pieces, axis=1)


def mirrored(x: mx.array, left: int, right: int) -> mx.array:
    """Extend x at both ends by mirroring, without repeating the outermost sample.

    (B, T, C) → (B, left + T + right, C).
    If x is too short to mirror, zeros are appended first, and the same number of samples is cut from the
    result: upstream's rule for clips of a few frames.
    """
    if left == right == 0:
        return x
    short = max(0, max(left, right) + 1 - x.shape[1])
    x = mx.pad(x, [(0, 0), (0, short), (0, 0)])
    end = x.shape[1] - 1
    before, after = mx.arange(left, 0, -1), mx.arange(end - 1, end - 1 - right, -1)
    whole = mx.concatenate([x[:, before], x, x[:, after]], axis=1)
    return whole[:, : whole.shape[1] - short]
