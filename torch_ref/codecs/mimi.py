"""Mimi: split residual vector quantization of causal convolutional and attended latents.

Paper: Défossez et al. 2024, arXiv 2410.00037. Upstream: kyutai-labs/moshi@e6a55d2, MIT; parameter names are
those of transformers' MimiModel, with the entries of a codebook computed when it is converted.
Differs from upstream: encode runs in windows with exact context, decode in windows that carry its state. The
last, partial frame is padded layer by layer, as in transformers; kyutai's own code pads the samples with
zeros first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.encodec import CausalConvTranspose1d, VectorQuantizer
from torch_ref.codecs.mimi_transformer import Transformer
from torch_ref.layers.carried import Carried, States, StreamState
from torch_ref.layers.conv import Conv1d
from torch_ref.layers.snake import LogSnake1d
from torch_ref.limits.precision import Codec, exactly, rounded
from tts_core.codecs.mimi import (
    POLICY,
    STEPS,
    MimiConfig,
    check_codebooks,
    encode_windows,
)
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import BookSizes


class CausalConv1d(nn.Module):
    """A causal convolution of a signal padded with zeros. (B, C, T) → (B, C', ceil(T/s))."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
    ):
        super().__init__()
        self.stride, self.padding = stride, (kernel_size - 1) * dilation + 1 - stride
        self.conv = Conv1d(
            in_channels, out_channels, kernel_size, stride=stride, dilation=dilation, groups=groups
        )

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        if carried and self.padding:
            return self.conv(carried.extended(x, self.padding))
        return self.conv(F.pad(x, (self.padding, -x.shape[2] % self.stride)))


def through(layers: Iterable[nn.Module], x: Tensor, carried: Carried | None) -> Tensor:
    """Run layers in order; activations carry nothing."""
    for layer in layers:
        x = layer(x) if isinstance(layer, nn.ELU | LogSnake1d) else layer(x, carried)
    return x


class ResidualBlock(nn.Module):
    """Two convolutions with a narrow middle around a skip. (B, C, T) → same."""

    def __init__(self, channels: int, kernel_size: int, dilation: int, compress: int):
        super().__init__()
        inner = channels // compress
        self.block = nn.ModuleList(
            [
                nn.ELU(),
                CausalConv1d(channels, inner, kernel_size, dilation=dilation),
                nn.ELU(),
                CausalConv1d(inner, channels, 1),
            ]
        )

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        return x + through(self.block, x, carried)


class Encoder(nn.Module):
    """Samples to steps. (B, 1, L) → (B, C, T)."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        width = config.num_filters
        layers: list[nn.Module] = [CausalConv1d(1, width, config.kernel_size)]
        for stride in config.upsampling_ratios[::-1]:
            for dilation in config.dilations:
                layers.append(ResidualBlock(width, config.residual_kernel_size, dilation, config.compress))
            layers += [nn.ELU(), CausalConv1d(width, 2 * width, 2 * stride, stride)]
            width *= 2
        layers += [nn.ELU(), CausalConv1d(width, config.hidden_size, config.last_kernel_size)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Decoder(nn.Module):
    """Steps to samples. (B, C, T) → (B, 1, L)."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        width = config.width
        layers: list[nn.Module] = [CausalConv1d(config.hidden_size, width, config.kernel_size)]
        for stride in config.upsampling_ratios:
            layers += [nn.ELU(), CausalConvTranspose1d(width, width // 2, 2 * stride, stride)]
            width //= 2
            for dilation in config.dilations:
                layers.append(ResidualBlock(width, config.residual_kernel_size, dilation, config.compress))
        layers += [nn.ELU(), CausalConv1d(width, 1, config.last_kernel_size)]
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        return through(self.layers, x, carried)


class Downsampling(nn.Module):
    """A convolution from steps to frames; the edges repeat a step. (B, C, T) → (B, C, ceil(T/2))."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = Conv1d(channels, channels, 2 * STEPS, stride=STEPS, bias=False)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        """Read a piece; only the last one has a partial frame."""
        known = (carried or Carried()).extended(x, STEPS, x[:, :, :1].expand(-1, -1, STEPS))
        last = known[:, :, -1:].expand(-1, -1, -x.shape[2] % STEPS)
        return self.conv(torch.cat((known, last), dim=2))


class DepthwiseConvTranspose1d(nn.Module):
    """A depthwise transposed convolution of kernel 4 and stride 2. (B, C, T) → (B, C, 2T)."""

    def __init__(self, channels: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, 2 * STEPS))

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        """Two products a sample: with the last frame and with the one before."""
        earlier = (carried or Carried()).extended(x, 1)[:, :, :-1]
        taps = self.weight[:, 0, :, None].unbind(1)
        phases = [x * taps[i] + earlier * taps[i + STEPS] for i in range(STEPS)]
        return torch.stack(phases, dim=-1).flatten(2)


class Upsampling(nn.Module):
    """Frames to steps. (B, C, T) → (B, C, 2T)."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv = DepthwiseConvTranspose1d(channels)

    def forward(self, x: Tensor, carried: Carried | None = None) -> Tensor:
        return self.conv(x, carried)


class ResidualVectorQuantizer(nn.Module):
    """Residual quantization between two projections: each codebook encodes what those before it leave."""

    def __init__(self, config: MimiConfig | BookSizes, n_codebooks: int):
        super().__init__()
        width, inner = config.hidden_size, config.codebook_dim
        projected = config.is_projected
        self.input_proj = Conv1d(width, inner, 1, bias=False) if projected else nn.Identity()
        self.layers = nn.ModuleList(
            [VectorQuantizer(config.codebook_size, inner) for _ in range(n_codebooks)]
        )
        self.output_proj = Conv1d(inner, width, 1, bias=False) if projected else nn.Identity()

    def encode(self, latents: Tensor, n_codebooks: int) -> list[Tensor]:
        """Encode latents with the first codebooks. (B, C, T) → codes, (B, T) int32 each."""
        rest, codes = self.input_proj(latents).transpose(1, 2), []
        for quantizer in cast(list[VectorQuantizer], self.layers[:n_codebooks]):
            codes.append(quantizer.encode(rest))
            rest = rest - quantizer.decode(codes[-1])
        return codes

    def decode(self, codes: Tensor) -> Tensor:
        """Sum the entries of codes. (B, q, T) with q ≤ Q → (B, C, T)."""
        layers = cast(list[VectorQuantizer], self.layers)
        parts = [layers[q].decode(codes[:, q]) for q in range(codes.shape[1])]
        return self.output_proj(torch.stack(parts).sum(dim=0).transpose(1, 2))


class SplitResidualVectorQuantizer(nn.Module):
    """Two quantizers of the same latents, whose results are added: semantic and acoustic."""

    def __init__(self, config: MimiConfig | BookSizes):
        super().__init__()
        self.n_semantic = config.n_semantic
        acoustic = config.n_codebooks - config.n_semantic
        self.semantic_residual_vector_quantizer = ResidualVectorQuantizer(config, config.n_semantic)
        self.acoustic_residual_vector_quantizer = ResidualVectorQuantizer(config, acoustic)

    def encode(self, latents: Tensor, n_codebooks: int) -> Tensor:
        """Encode latents. (B, C, T) → codes (B, n_codebooks, T) int32."""
        codes = self.semantic_residual_vector_quantizer.encode(latents, min(n_codebooks, self.n_semantic))
        if n_codebooks > self.n_semantic:
            acoustic = n_codebooks - self.n_semantic
            codes = codes + self.acoustic_residual_vector_quantizer.encode(latents, acoustic)
        return torch.stack(codes, dim=1)

    def decode(self, codes: Tensor) -> Tensor:
        """Add both quantizers' latents. (B, q, T) with q ≤ Q → (B, C, T)."""
        semantic, acoustic = codes[:, : self.n_semantic], codes[:, self.n_semantic :]
        latents = self.semantic_residual_vector_quantizer.decode(semantic)
        if acoustic.shape[1]:
            latents = latents + self.acoustic_residual_vector_quantizer.decode(acoustic)
        return latents


class MimiEncoder(nn.Module):
    """Samples to codes: the half that Qwen3-TTS's codec shares."""

    def __init__(self, config: MimiConfig):
        super().__init__()
        self.config, self.hop_length = config, config.hop_length
        self.encoder = Encoder(config)
        self.encoder_transformer = Transformer(config)
        self.downsample = Downsampling(config.hidden_size)
        self.quantizer = SplitResidualVectorQuantizer(config)

    def encode_in_windows(self, samples: Tensor, n_codebooks: int, max_frames: int) -> Tensor:
        """Encode a waveform in windows of frames. (B, L) → (B, n_codebooks, ceil(L / hop)) int32."""
        hop, states = self.hop_length, None
        pieces = [torch.zeros(samples.shape[0], n_codebooks, 0, dtype=torch.int32, device=samples.device)]
        for window in encode_windows(self.config, -(-samples.shape[1] // hop), max_frames):
            section = samples[:, None, window.first * hop : window.stop * hop]
            steps = self.encoder(section)[:, :, STEPS * (window.start - window.first) :]
            carried = Carried(states)
            latents = self.downsample(self.encoder_transformer(steps, carried), carried)
            states = carried.after(steps.shape[2])
            pieces.append(self.quantizer.encode(latents, n_codebooks))
        return torch.cat(pieces, dim=2)


class Mimi(Codec, MimiEncoder):
    """The whole codec. Public methods take and return samples (B, L) and codes (B, Q, T).

    policy: window sizes; it may be replaced at any time.
    """

    def __init__(self, config: MimiConfig, policy: CodecPolicy = POLICY):
        super().__init__(config)
        self.policy, self.sample_rate = policy, config.sample_rate
        self.n_codebooks = config.n_codebooks
        self.upsample = Upsampling(config.hidden_size)
        self.decoder_transformer = Transformer(config)
        self.decoder = Decoder(config)

    @exactly
    @torch.inference_mode()
    def encode(self, samples: Tensor | np.ndarray, n_codebooks: int) -> Tensor:
        """Encode a waveform, window by window.

        (B, L) array or tensor → (B, n_codebooks, ceil(L / hop)) int32. Raises UsageError for a number of
        codebooks that the model does not have.
        """
        check_codebooks(self.config, n_codebooks)
        weight = self.downsample.conv.weight
        samples = torch.as_tensor(samples).to(weight.device, weight.dtype)
        return self.encode_in_windows(samples, n_codebooks, self.policy.max_frames)

    @rounded
    @torch.inference_mode()
    def decode(self, codes: Tensor | np.ndarray) -> Tensor:
        """Decode codes to a waveform, window by window.

        (B, q, T) array or tensor, q ≤ Q → (B, hop T). Raises UsageError for more codebooks than the model
        has.
        """
        weight, states = self.downsample.conv.weight, None
        codes = torch.as_tensor(codes).to(weight.device)
        check_codebooks(self.config, codes.shape[1])
        pieces = [weight.new_zeros(codes.shape[0], 0)]
        for start, stop in self.policy.even_cuts(codes.shape[2]):
            samples, states = self.decode_window(codes[:, :, start:stop], states)
            pieces.append(samples)
        return torch.cat(pieces, dim=1)

    @rounded
    @torch.inference_mode()
    def decode_window(
        self, codes: Tensor | np.ndarray, states: States | None
    ) -> tuple[Tensor, list[StreamState]]:
        """Decode the next frames of streams at once. Pieces of any lengths add up to the whole decode.

        codes: (B, q, T), at least one frame → (B, hop T).
        states: after the pieces before; None at the start.
        """
        codes = torch.as_tensor(codes).to(self.downsample.conv.weight.device)
        carried = Carried(states)
        steps = self.upsample(self.quantizer.decode(codes), carried)
        samples = self.decoder(self.decoder_transformer(steps, carried), carried)[:, 0]
        after = carried.after(steps.shape[2])
        return samples.to(self.downsample.conv.weight.dtype), after
