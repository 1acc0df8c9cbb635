"""EnCodec: residual vector quantization of causal convolutional and recurrent latents.

Paper: Défossez et al. 2022, arXiv 2210.13438. Upstream: facebookresearch/encodec 0.1.1, MIT; parameter names
are those of transformers' EncodecModel, weight norm folded.
Differs from upstream: encode and decode run in windows with exact context, with the LSTM's state passed on.
Only the causal mono model: no loudness step, no chunks.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.carried import Carried
from torch_ref.layers.conv import Conv1d, ConvTranspose1d, conv_transpose1d
from torch_ref.layers.lstm import LSTM, LSTMState
from torch_ref.limits.precision import Codec, exactly, rounded
from torch_ref.limits.remedies import first_largest
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
    """A causal convolution of a signal mirrored at its ends. (B, C, T) → (B, C', ceil(T/s))."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__()
        self.stride, self.padding = stride, kernel_size - stride
        self.conv = Conv1d(in_channels, out_channels, kernel_size, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(mirrored(x, self.padding, -x.shape[2] % self.stride))


class CausalConvTranspose1d(nn.Module):
    """A transposed convolution without its last, incomplete samples. (B, C, T) → (B, C', s·T)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int):
        super().__init__()
        self.stride, self.overlap = stride, kernel_size - stride
        self.conv = ConvTranspose1d(in_channels, out_channels, kernel_size, stride=stride)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        if not (carried and self.overlap):
            return self.conv(x)[:, :, : x.shape[2] * self.stride]
        y = carried.added(conv_transpose1d(x, self.conv.weight, None, self.stride), self.overlap)
        bias = cast(Tensor, self.conv.bias)
        return y + bias[:, None].to(y.dtype)


class ResidualBlock(nn.Module):
    """Two convolutions with a narrow middle, plus a third as shortcut. (B, C, T) → same."""

    def __init__(self, channels: int, kernel_size: int, compress: int):
        super().__init__()
        inner = channels // compress
        self.block = nn.ModuleList(
            [nn.ELU(), CausalConv1d(channels, inner, kernel_size), nn.ELU(), CausalConv1d(inner, channels, 1)]
        )
        self.shortcut = CausalConv1d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for layer in self.block:
            y = layer(y)
        return self.shortcut(x) + y


class RecurrentBlock(nn.Module):
    """LSTM layers with a skip connection. (B, C, T) and a state → same, and the next state."""

    def __init__(self, channels: int, num_layers: int):
        super().__init__()
        self.lstm = LSTM(channels, channels, num_layers)

    def forward(self, x: Tensor, state: LSTMState | None = None) -> tuple[Tensor, LSTMState]:
        y, after = self.lstm(x.transpose(1, 2), state)
        return x + y.transpose(1, 2), after


class EncodecMemory(NamedTuple):
    """State passed from one window to the next: the last outputs of the LSTM, and its state."""

    frames: Tensor  # (B, C, T)
    state: LSTMState


class CausalStack(nn.Module):
    """Causal convolutions, an LSTM, causal convolutions, over a whole signal or in windows."""

    def __init__(self, before: list[nn.Module], recurrent: RecurrentBlock, after: list[nn.Module]):
        super().__init__()
        self.middle = len(before)
        self.layers = nn.ModuleList([*before, recurrent, *after])

    def forward(self, x: Tensor) -> Tensor:
        return self.window(x, 0, None, 0)[0]

    def window(
        self, x: Tensor, context: int, memory: EncodecMemory | None, tail: int
    ) -> tuple[Tensor, EncodecMemory]:
        """Compute the outputs for one window, and the memory for the next one.

        x: (B, C, T), whose first `context` frames are only for the convolutions before the LSTM.
        memory: None at the signal's start.
        tail: frames that the convolutions after the LSTM look back.
        """
        for layer in self.layers[: self.middle]:
            x = layer(x)
        x, state = self.layers[self.middle](x[:, :, context:], memory and memory.state)
        known = torch.cat([memory.frames, x], dim=2) if memory else x
        y = known
        for layer in self.layers[self.middle + 1 :]:
            y = layer(y)
        new = y.shape[2] // known.shape[2] * x.shape[2]
        return y[:, :, y.shape[2] - new :], EncodecMemory(known[:, :, max(0, known.shape[2] - tail) :], state)


class Encoder(CausalStack):
    """Samples to latents. (B, 1, L) → (B, C, T)."""

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
    """Latents to samples. (B, C, T) → (B, 1, L)."""

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
        self.embed = nn.Parameter(torch.zeros(codebook_size, width))


class VectorQuantizer(nn.Module):
    """One codebook, searched by distance."""

    def __init__(self, codebook_size: int, width: int):
        super().__init__()
        self.codebook = Codebook(codebook_size, width)

    def encode(self, latents: Tensor) -> Tensor:
        """Find the nearest entries, the first of equal ones. (B, T, C) → (B, T) int32."""
        entries = self.codebook.embed
        distance = latents.square().sum(-1, keepdim=True) - 2 * latents @ entries.T + entries.square().sum(-1)
        return first_largest(-distance).to(torch.int32)

    def decode(self, codes: Tensor) -> Tensor:
        """Look up entries. (B, T) → (B, T, C)."""
        return F.embedding(codes, self.codebook.embed)


class ResidualVectorQuantizer(nn.Module):
    """Residual quantization: each codebook encodes the residual of those before it."""

    def __init__(self, config: EncodecConfig):
        super().__init__()
        self.layers = nn.ModuleList(
            VectorQuantizer(config.codebook_size, config.hidden_size) for _ in range(config.n_codebooks)
        )

    def encode(self, latents: Tensor, n_codebooks: int) -> Tensor:
        """Encode latents. (B, C, T) → codes (B, n_codebooks, T) int32."""
        rest, codes = latents.transpose(1, 2), []
        for quantizer in cast(list[VectorQuantizer], self.layers[:n_codebooks]):
            codes.append(quantizer.encode(rest))
            rest = rest - quantizer.decode(codes[-1])
        return torch.stack(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Sum the entries of codes. (B, q, T) with q ≤ Q → (B, C, T)."""
        layers = cast(list[VectorQuantizer], self.layers)
        parts = [layers[q].decode(codes[:, q]) for q in range(codes.shape[1])]
        return torch.stack(parts).sum(dim=0).transpose(1, 2)


class Encodec(Codec):
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

    @exactly
    @torch.inference_mode()
    def encode(self, samples: Tensor | np.ndarray, n_codebooks: int) -> Tensor:
        """Encode a waveform, window by window.

        (B, L) array or tensor → (B, n_codebooks, ceil(L / hop)) int32. Raises UsageError for a number of
        codebooks that the model does not have.
        """
        check_codebooks(self.config, n_codebooks)
        weight = next(self.quantizer.parameters())
        samples = torch.as_tensor(samples).to(weight.device, weight.dtype)
        hop, memory = self.hop_length, None
        pieces = [torch.zeros(samples.shape[0], n_codebooks, 0, dtype=torch.int32, device=weight.device)]
        for window in encode_windows(self.config, -(-samples.shape[1] // hop), self.policy.max_frames):
            section = samples[:, None, window.first * hop : window.stop * hop]
            context = window.start - window.first
            latents, memory = self.encoder.window(section, context, memory, encode_tail(self.config))
            pieces.append(self.quantizer.encode(latents, n_codebooks))
        return torch.cat(pieces, dim=2)

    @torch.inference_mode()
    def latents(self, codes: np.ndarray) -> Tensor:
        """Sum the entries of codes. (B, q, F) → (B, C, F)."""
        return self.quantizer.decode(torch.from_numpy(codes).to(next(self.quantizer.parameters()).device))

    @rounded
    @torch.inference_mode()
    def decode(self, codes: Tensor | np.ndarray) -> Tensor:
        """Decode codes to a waveform, window by window.

        (B, q, T) array or tensor, q ≤ Q → (B, hop T). Raises UsageError for more codebooks than the model
        has.
        """
        weight, memory = next(self.quantizer.parameters()), None
        codes = torch.as_tensor(codes).to(weight.device)
        check_codebooks(self.config, codes.shape[1])
        pieces = [weight.new_zeros(codes.shape[0], 0)]
        for window in decode_windows(self.config, codes.shape[2], self.policy.max_frames):
            latents = self.quantizer.decode(codes[:, :, window.first : window.stop])
            context = window.start - window.first
            audio, memory = self.decoder.window(latents, context, memory, decode_tail(self.config))
            pieces.append(audio[:, 0].to(weight.dtype))
        return torch.cat(pieces, dim=1)


def mirrored(x: Tensor, left: int, right: int) -> Tensor:
    """Extend x at both ends by mirroring, without repeating the outermost sample.

    (B, C, T) → (B, C, left + T + right).
    If x is too short to mirror, zeros are appended first, and the same number of samples is cut from the
    result: upstream's rule for clips of a few frames.
    """
    if left == right == 0:
        return x
    short = max(0, max(left, right) + 1 - x.shape[2])
    x = F.pad(x, (0, short)) if short else x
    end = x.shape[2] - 1
    whole = torch.cat([x[:, :, 1 : left + 1].flip(2), x, x[:, :, end - right : end].flip(2)], dim=2)
    return whole[:, :, : whole.shape[2] - short]
