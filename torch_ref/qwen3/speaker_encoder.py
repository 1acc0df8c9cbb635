"""Qwen3-TTS's speaker encoder: a vector of the voice of a recording.

Paper: Desplanques et al. 2020, "ECAPA-TDNN", arXiv:2005.07143. Upstream: QwenLM/Qwen3-TTS@022e286,
Apache-2.0; parameter names are the published ones.
No known difference.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.host import Host
from torch_ref.layers.conv import Conv1d
from torch_ref.limits.precision import exactly
from tts_core.qwen3.speaker import SpeakerConfig, mel

LEAST_VARIANCE = 1e-12


class TDNN(nn.Module):
    """A convolution of a reflected signal, and a ReLU. (B, C, T) → (B, C', T)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1, dilation: int = 1):
        super().__init__()
        self.padding = (kernel_size - 1) * dilation // 2
        self.conv = Conv1d(in_channels, out_channels, kernel_size, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv(reflected(x, self.padding)))


def reflected(x: Tensor, padding: int) -> Tensor:
    """Reflect both ends of time. (B, C, T) → (B, C, T + 2 padding)."""
    return F.pad(x, (padding, padding), mode="reflect") if padding else x


class Res2NetBlock(nn.Module):
    """Groups of channels, each convolved together with the output of the one before. (B, C, T) → same."""

    def __init__(self, channels: int, scale: int, kernel_size: int, dilation: int):
        super().__init__()
        self.scale, width = scale, channels // scale
        self.blocks = nn.ModuleList(TDNN(width, width, kernel_size, dilation) for _ in range(scale - 1))

    def forward(self, x: Tensor) -> Tensor:
        groups = x.chunk(self.scale, dim=1)
        outputs = [groups[0]]
        for j, block in enumerate(self.blocks):
            outputs.append(block(groups[j + 1] + outputs[-1] if j else groups[1]))
        return torch.cat(outputs, dim=1)


class SqueezeExcitation(nn.Module):
    """Factors of the channels, from their means over time. (B, C, T) → same."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.conv1 = Conv1d(channels, inner, 1)
        self.conv2 = Conv1d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=2, keepdim=True)
        return x * torch.sigmoid(self.conv2(F.relu(self.conv1(mean))))


class SERes2NetBlock(nn.Module):
    """Convolutions of groups between two of all channels, around a skip. (B, C, T) → same."""

    def __init__(self, config: SpeakerConfig, kernel_size: int, dilation: int):
        super().__init__()
        width = config.enc_channels[0]
        self.tdnn1 = TDNN(width, width)
        self.res2net_block = Res2NetBlock(width, config.enc_res2net_scale, kernel_size, dilation)
        self.tdnn2 = TDNN(width, width)
        self.se_block = SqueezeExcitation(width, config.enc_se_channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))


class AttentiveStatistics(nn.Module):
    """Mean and deviation over time, weighted by attention. (B, C, T) → (B, 2C, 1)."""

    def __init__(self, channels: int, inner: int):
        super().__init__()
        self.tdnn = TDNN(3 * channels, inner)
        self.conv = Conv1d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        even = torch.full_like(x, 1 / x.shape[2])
        context = [part.expand_as(x) for part in self.statistics(x, even)]
        scores = self.conv(torch.tanh(self.tdnn(torch.cat((x, *context), dim=1))))
        return torch.cat(self.statistics(x, torch.softmax(scores, dim=2)), dim=1)

    def statistics(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Compute weighted mean and deviation. (B, C, T) twice → (B, C, 1) each."""
        mean = (weights * x).sum(dim=2, keepdim=True)
        variance = (weights * (x - mean).square()).sum(dim=2, keepdim=True)
        return mean, torch.sqrt(variance.clamp(min=LEAST_VARIANCE))


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
        self.blocks = nn.ModuleList(blocks)
        self.mfa = TDNN(channels[-1], channels[-1], *sizes[-1])
        self.asp = AttentiveStatistics(channels[-1], config.enc_attention_channels)
        self.fc = Conv1d(2 * channels[-1], config.enc_dim, 1)

    def forward(self, frames: Tensor) -> Tensor:
        x, outputs = frames.transpose(1, 2), []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = self.mfa(torch.cat(outputs[1:], dim=1))
        return self.fc(self.asp(x))[:, :, 0]

    @exactly
    @torch.inference_mode()
    def embed(self, samples: np.ndarray) -> np.ndarray:
        """Encode a recording, (L,) float32 at the config's rate, as a vector, (D,) float32."""
        host = Host(self.fc)
        return host.to_host(self(host.to_device(mel(samples, self.config)[None]).to(self.fc.weight)))[0]
