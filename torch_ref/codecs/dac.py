"""Descript Audio Codec: residual vector quantization of 1-D convolutional latents.

Paper: Kumar et al. 2023, arXiv 2306.06546. Upstream: descriptinc/descript-audio-codec 1.0.0 dac/model/dac.py,
MIT; parameter names are those of transformers' DacModel, weight norm folded.
Differs from upstream: encode and decode run in windows with exact context. No loudness step, no trimming.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.carried import States, StreamState
from torch_ref.layers.conv import Conv1d, ConvTranspose1d
from torch_ref.layers.delayed import Delayed
from torch_ref.limits.precision import Codec, exactly, rounded
from torch_ref.limits.remedies import first_largest
from tts_core.codecs.dac import DILATIONS, DacConfig, decode_window, decoded_length, encode_window
from tts_core.codecs.policy import DEFAULT, CodecPolicy


class Snake1d(nn.Module):
    """x + sin²(αx)/α. (B, C, T) → same."""

    def __init__(self, channels: int):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        a = self.alpha
        if not torch.is_grad_enabled():  # in one buffer; the same numbers
            return (a * x).sin_().square_().mul_((a + 1e-9).reciprocal()).add_(x)
        s = torch.sin(a * x)
        return x + (a + 1e-9).reciprocal() * s.square()


class ResidualUnit(nn.Module):
    """Two snake-activated convolutions around a skip. (B, C, T) → same."""

    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.snake1 = Snake1d(channels)
        self.conv1 = Conv1d(channels, channels, 7, dilation=dilation, padding=3 * dilation)
        self.snake2 = Snake1d(channels)
        self.conv2 = Conv1d(channels, channels, 1)

    def forward(self, x: Tensor, carried: Delayed | None = None) -> Tensor:
        if carried is None:
            return x + self.conv2(self.snake2(self.conv1(self.snake1(x))))
        y = self.conv2(self.snake2(carried.convolved(self.snake1(x), self.conv1)))
        return carried.inside(carried.delayed(x, self.conv1) + y)


class EncoderBlock(nn.Module):
    """Residual units, then a convolution that divides the rate by `stride`.

    (B, C, T) → (B, 2C, T/stride).
    """

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.res_unit1 = ResidualUnit(channels, DILATIONS[0])
        self.res_unit2 = ResidualUnit(channels, DILATIONS[1])
        self.res_unit3 = ResidualUnit(channels, DILATIONS[2])
        self.snake1 = Snake1d(channels)
        self.conv1 = Conv1d(channels, 2 * channels, 2 * stride, stride=stride, padding=math.ceil(stride / 2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.res_unit3(self.res_unit2(self.res_unit1(x)))
        return self.conv1(self.snake1(x))


class Encoder(nn.Module):
    """Samples to latents. (B, 1, L) → (B, C, T)."""

    def __init__(self, config: DacConfig):
        super().__init__()
        width = config.encoder_hidden_size
        self.conv1 = Conv1d(1, width, 7, padding=3)
        self.block = nn.ModuleList(
            EncoderBlock(width * 2**i, stride) for i, stride in enumerate(config.downsampling_ratios)
        )
        self.snake1 = Snake1d(config.encoder_width)
        self.conv2 = Conv1d(config.encoder_width, config.hidden_size, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        for block in self.block:
            x = block(x)
        return self.conv2(self.snake1(x))


class DecoderBlock(nn.Module):
    """A transposed convolution that raises the rate, then residual units. (B, C, T) → (B, C/2, stride·T)."""

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.snake1 = Snake1d(channels)
        self.conv_t1 = ConvTranspose1d(
            channels, channels // 2, 2 * stride, stride=stride, padding=math.ceil(stride / 2)
        )
        self.res_unit1 = ResidualUnit(channels // 2, DILATIONS[0])
        self.res_unit2 = ResidualUnit(channels // 2, DILATIONS[1])
        self.res_unit3 = ResidualUnit(channels // 2, DILATIONS[2])

    def forward(self, x: Tensor, carried: Delayed | None = None) -> Tensor:
        x = self.snake1(x)
        x = self.conv_t1(x) if carried is None else carried.inside(carried.raised(x, self.conv_t1))
        return self.res_unit3(self.res_unit2(self.res_unit1(x, carried), carried), carried)


class Decoder(nn.Module):
    """Latents to samples in [-1, 1]. (B, C, T) → (B, 1, L)."""

    def __init__(self, config: DacConfig):
        super().__init__()
        width = config.decoder_hidden_size
        self.conv1 = Conv1d(config.hidden_size, width, 7, padding=3)
        self.block = nn.ModuleList(
            DecoderBlock(width // 2**i, stride) for i, stride in enumerate(config.upsampling_ratios)
        )
        self.snake1 = Snake1d(width // 2 ** len(config.upsampling_ratios))
        self.conv2 = Conv1d(width // 2 ** len(config.upsampling_ratios), 1, 7, padding=3)

    def forward(self, x: Tensor, carried: Delayed | None = None) -> Tensor:
        if carried is None:
            x = self.conv1(x)
        else:
            x = carried.inside(carried.convolved(carried.inside(x), self.conv1))
        for block in self.block:
            x = block(x, carried)
        x = self.snake1(x)
        return torch.tanh(self.conv2(x) if carried is None else carried.convolved(x, self.conv2))


class VectorQuantizer(nn.Module):
    """One codebook, searched by cosine in a narrow projection of the latents."""

    def __init__(self, width: int, codebook_size: int, codebook_dim: int):
        super().__init__()
        self.in_proj = Conv1d(width, codebook_dim, 1)
        self.out_proj = Conv1d(codebook_dim, width, 1)
        self.codebook = nn.Embedding(codebook_size, codebook_dim)

    def encode(self, latents: Tensor) -> Tensor:
        """Find the nearest entries, the first of equal ones. (B, C, T) → (B, T) int32."""
        encodings = F.normalize(self.in_proj(latents).transpose(1, 2), dim=-1)  # (B, T, E)
        entries = F.normalize(self.codebook.weight, dim=-1)
        distance = (
            encodings.square().sum(-1, keepdim=True) - 2 * encodings @ entries.T + entries.square().sum(-1)
        )
        return first_largest(-distance).to(torch.int32)

    def decode(self, codes: Tensor) -> Tensor:
        """Look up entries and project them back. (B, T) → (B, C, T)."""
        return self.out_proj(self.codebook(codes).transpose(1, 2))


class ResidualVectorQuantizer(nn.Module):
    """Residual quantization: each codebook encodes the residual of those before it."""

    def __init__(self, config: DacConfig):
        super().__init__()
        self.quantizers = nn.ModuleList(
            VectorQuantizer(config.hidden_size, config.codebook_size, dim) for dim in config.codebook_dim
        )

    def encode(self, latents: Tensor) -> Tensor:
        """Encode latents. (B, C, T) → codes (B, Q, T) int32."""
        codes = []
        for quantizer in cast(list[VectorQuantizer], self.quantizers):
            codes.append(quantizer.encode(latents))
            latents = latents - quantizer.decode(codes[-1])
        return torch.stack(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Sum the entries of codes. (B, q, T) with q ≤ Q → (B, C, T)."""
        quantizers = cast(list[VectorQuantizer], self.quantizers)
        parts = [quantizers[q].decode(codes[:, q]) for q in range(codes.shape[1])]
        return torch.stack(parts).sum(dim=0)


class Dac(Codec):
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

    @exactly
    @torch.inference_mode()
    def encode(self, samples: Tensor | np.ndarray) -> Tensor:
        """Encode a waveform, zero-padded on the right to whole frames.

        (B, L) array or tensor → (B, Q, ceil(L / hop)) int32.
        """
        weight = self.decoder.conv2.weight
        samples = torch.as_tensor(samples).to(weight.device, weight.dtype)
        frames = -(-samples.shape[1] // self.hop_length)
        samples = F.pad(samples, (0, frames * self.hop_length - samples.shape[1]))
        pieces = [self._encode_frames(samples, start, stop) for start, stop in self.policy.even_cuts(frames)]
        empty = torch.zeros(samples.shape[0], self.n_codebooks, 0, dtype=torch.int32, device=weight.device)
        return torch.cat([empty, *pieces], dim=2)

    def _encode_frames(self, samples: Tensor, start: int, stop: int) -> Tensor:
        window = encode_window(self.config, start, stop, samples.shape[1] // self.hop_length)
        latents = self.encoder(
            samples[:, None, window.first * self.hop_length : window.last * self.hop_length]
        )
        return self.quantizer.encode(latents[:, :, start - window.first : stop - window.first])

    @torch.inference_mode()
    def decode(self, codes: Tensor | np.ndarray) -> Tensor:
        """Decode codes to a waveform, window by window.

        (B, q, T) array or tensor, q ≤ Q → (B, L), L from `decoded_length`.
        """
        codes = torch.as_tensor(codes).to(self.decoder.conv2.weight.device)
        cuts = self.policy.decode_cuts(codes.shape[2])
        pieces = [self.decode_frames(codes, start, stop) for start, stop in cuts]
        return torch.cat([self._silence(codes.shape[0]), *pieces], dim=1)

    @torch.inference_mode()
    def decode_frames(self, codes: Tensor, start: int, stop: int) -> Tensor:
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

    @rounded
    @torch.inference_mode()
    def decode_whole(self, codes: Tensor) -> Tensor:
        """Decode codes without windows. (B, q, T) → (B, L)."""
        audio = self.decoder(self.quantizer.decode(codes))[:, 0]
        return audio.to(self.decoder.conv2.weight.dtype)

    @rounded
    @torch.inference_mode()
    def decode_window(
        self, codes: Tensor | np.ndarray, states: States | None, ends: Sequence[int | None] | None = None
    ) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams, whose samples come `tts_core.codecs.dac.delay` late.

        codes: (B, q, T), after the end any → (B, hop T).
        states: after the pieces before; None at the start.
        ends: frames of each stream; None while they are not known: no frame is after the end.
        """
        codes = torch.as_tensor(codes).to(self.decoder.conv2.weight.device)
        carried = Delayed(states, ends)
        samples = self.decoder(self.quantizer.decode(codes), carried)[:, 0]
        after = carried.after(codes.shape[2])
        return samples.to(self.decoder.conv2.weight.dtype), after

    def _silence(self, batch: int) -> Tensor:
        return self.decoder.conv2.weight.new_zeros(batch, 0)
