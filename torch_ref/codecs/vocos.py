"""Vocos: from EnCodec's codes to a waveform, through a spectrum and its inverse transform.

Paper: Siuzdak 2023, arXiv 2306.00814. Upstream: gemelo-ai/vocos 0.1.0, MIT; parameter names are the published
ones.
Differs from upstream: decode runs in windows with exact context; the inverse transform is a product with its
matrix.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.layers.conv import Conv1d
from torch_ref.layers.istft import InverseSTFT
from torch_ref.layers.norm import LayerNorm
from torch_ref.limits.precision import Codec, rounded
from torch_ref.limits.remedies import at_least_float32
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
        self.codebook_weights = nn.Parameter(
            torch.zeros(config.n_codebooks * config.codebook_size, config.input_channels)
        )

    def forward(self, codes: Tensor) -> Tensor:
        books = torch.arange(codes.shape[1], dtype=torch.int32, device=codes.device)[:, None]
        return F.embedding(codes + books * self.codebook_size, self.codebook_weights).sum(dim=1)


class AdaptiveLayerNorm(nn.Module):
    """Layer norm with a gain and offset per bandwidth. (B, T, D) → same."""

    def __init__(self, num_bandwidths: int, width: int):
        super().__init__()
        self.scale = nn.Embedding(num_bandwidths, width)
        self.shift = nn.Embedding(num_bandwidths, width)

    def forward(self, x: Tensor, bandwidth_id: int) -> Tensor:
        wide = F.layer_norm(at_least_float32(x), x.shape[-1:], eps=NORM_EPS)
        return (wide * self.scale.weight[bandwidth_id] + self.shift.weight[bandwidth_id]).to(x.dtype)


class ConvNeXtBlock(nn.Module):
    """A convolution in time, then two layers in width, around a skip. (B, T, D) → same."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        width = config.dim
        self.dwconv = Conv1d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        self.norm = AdaptiveLayerNorm(config.num_bandwidths, width)
        self.pwconv1 = nn.Linear(width, config.intermediate_dim)
        self.pwconv2 = nn.Linear(config.intermediate_dim, width)
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, bandwidth_id: int) -> Tensor:
        y = self.dwconv(x.transpose(1, 2)).transpose(1, 2)
        y = F.gelu(self.pwconv1(self.norm(y, bandwidth_id)))
        return x + self.gamma * self.pwconv2(y)


class Backbone(nn.Module):
    """Convolution, norm and blocks. (B, T, C) → (B, T, D)."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        self.embed = Conv1d(config.input_channels, config.dim, KERNEL, padding=KERNEL // 2)
        self.norm = AdaptiveLayerNorm(config.num_bandwidths, config.dim)
        self.convnext = nn.ModuleList(ConvNeXtBlock(config) for _ in range(config.num_layers))
        self.final_layer_norm = LayerNorm(config.dim, NORM_EPS)

    def forward(self, x: Tensor, bandwidth_id: int) -> Tensor:
        x = self.norm(self.embed(x.transpose(1, 2)).transpose(1, 2), bandwidth_id)
        for block in self.convnext:
            x = block(x, bandwidth_id)
        return self.final_layer_norm(x)


class ISTFTHead(nn.Module):
    """Log magnitudes and phases, and their inverse transform. (B, T, D) → samples (B, L)."""

    def __init__(self, config: VocosConfig):
        super().__init__()
        self.out = nn.Linear(config.dim, 2 * config.n_bins)
        self.istft = InverseSTFT(config.n_fft, config.hop_length)

    def forward(self, x: Tensor) -> Tensor:
        log_magnitude, phase = at_least_float32(self.out(x)).transpose(1, 2).chunk(2, dim=1)  # (B, bins, T)
        magnitude = log_magnitude.exp().clamp(max=LARGEST_MAGNITUDE)
        with torch.autocast("cuda", enabled=False):
            return self.istft(magnitude * phase.cos(), magnitude * phase.sin())


class Vocos(Codec):
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

    @rounded
    @torch.inference_mode()
    def decode(self, codes: Tensor | np.ndarray, bandwidth_id: int) -> Tensor:
        """Decode codes to a waveform, window by window.

        (B, q, T) array or tensor, q ≤ Q → (B, hop T).  bandwidth_id: index of the norms' bandwidth (1.5,
        3, 6 and 12 kbps in the published model).  Raises UsageError for one that the model does not have, and
        for too many codebooks.
        """
        codes = torch.as_tensor(codes).to(self.head.out.weight.device)
        pieces = [torch.zeros(codes.shape[0], 0, device=codes.device)]
        for start, stop in self.policy.even_cuts(codes.shape[2]):
            pieces.append(self.decode_frames(codes, start, stop, bandwidth_id))
        return torch.cat(pieces, dim=1)

    @rounded
    @torch.inference_mode()
    def decode_frames(self, codes: Tensor, start: int, stop: int, bandwidth_id: int) -> Tensor:
        """Decode frames [start, stop) to samples that equal the same part of a whole decode.

        codes: (B, q, T), up to the end, or at least `tts_core.codecs.vocos.decode_lookahead` frames past
        `stop`.
        """
        check_request(self.config, codes.shape[1], bandwidth_id)
        window = decode_window(self.config, start, stop, codes.shape[2])
        x = self.feature_extractor(codes[:, :, window.first : window.last])
        audio = self.head(self.backbone(x, bandwidth_id))
        return audio[:, (start - window.first) * self.hop_length : (stop - window.first) * self.hop_length]
