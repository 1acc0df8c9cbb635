"""Qwen3-TTS's speaker encoder: configuration, tensor names and the mel front end.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0. Network: Desplanques et al. 2020, "ECAPA-TDNN",
arXiv:2005.07143.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tts_core.audio.mel import mel_filters, periodic_hann
from tts_core.config import Schema, check_numbers, mapping, reader
from tts_core.errors import CheckpointError, UsageError
from tts_core.printable import named

N_FFT, HOP, LEAST_POWER, LEAST_MEL = 1024, 256, 1e-9, 1e-5
PADDING = (N_FFT - HOP) // 2  # reflected at both ends


@dataclass(frozen=True)
class SpeakerConfig(Schema):
    """Shape of the speaker encoder. Numbers only: no dtype, device or path."""

    sample_rate: int  # Hz
    mel_dim: int
    enc_dim: int  # width of the speaker's vector
    enc_channels: tuple[int, ...]  # of the blocks, and of their sum at last
    enc_kernel_sizes: tuple[int, ...]
    enc_dilations: tuple[int, ...]
    enc_attention_channels: int
    enc_res2net_scale: int  # groups of a block's channels
    enc_se_channels: int

    def __post_init__(self) -> None:
        check_numbers(self, "Qwen3-TTS speaker config")
        sizes = self.enc_channels, self.enc_kernel_sizes, self.enc_dilations
        if len({len(each) for each in sizes}) != 1 or len(self.enc_channels) < 3:
            raise CheckpointError(
                "Qwen3-TTS speaker config: one size, kernel and dilation a block are needed"
            )
        if any(kernel % 2 == 0 for kernel in self.enc_kernel_sizes):
            raise CheckpointError(f"Qwen3-TTS speaker config: kernels {self.enc_kernel_sizes} must be odd")
        blocks = self.enc_channels[:-1]
        if len(set(blocks)) != 1 or blocks[0] % self.enc_res2net_scale or self.enc_res2net_scale < 2:
            raise CheckpointError(
                f"Qwen3-TTS speaker config: blocks of {blocks} channels in {self.enc_res2net_scale} groups; "
                "all must be equal, and a multiple of more than one group"
            )
        if self.enc_channels[-1] != blocks[0] * (len(blocks) - 1):
            raise CheckpointError(
                f"Qwen3-TTS speaker config: {self.enc_channels[-1]} channels for {len(blocks) - 1} blocks"
            )

    @property
    def least_frames(self) -> int:
        """Fewest mel frames: the widest reflected padding needs one more than it repeats."""
        pairs = zip(self.enc_kernel_sizes, self.enc_dilations, strict=True)
        return max((kernel - 1) * dilation // 2 for kernel, dilation in pairs) + 1

    @property
    def least_samples(self) -> int:
        """Fewest samples of a recording: those of the mel frames, and one more than is repeated at an end."""
        return max(self.least_frames * HOP, PADDING + 1)


# The original's defaults; a published config.json has enc_dim and sample_rate
DEFAULT = SpeakerConfig(
    sample_rate=24000,
    mel_dim=128,
    enc_dim=1024,
    enc_channels=(512, 512, 512, 512, 1536),
    enc_kernel_sizes=(5, 3, 3, 3, 1),
    enc_dilations=(1, 2, 3, 4, 1),
    enc_attention_channels=128,
    enc_res2net_scale=8,
    enc_se_channels=128,
)
read_converted = reader(SpeakerConfig, "Qwen3-TTS speaker config.json")
_HARMLESS = ("model_type", "dtype", "torch_dtype", "transformers_version")


def read_published(config: Mapping[str, Any]) -> SpeakerConfig:
    """Read the `speaker_encoder_config` of a published config.json; what is missing has its default."""
    where = "Qwen3-TTS config.json: speaker_encoder_config"
    given = {name: value for name, value in mapping(config, where).items() if name not in _HARMLESS}
    unknown = sorted(set(given) - set(asdict(DEFAULT)))
    if unknown:
        raise CheckpointError(f"{where}: unknown {named(unknown)}")
    return read_converted(asdict(DEFAULT) | given)


def parameter_shapes(config: SpeakerConfig) -> dict[str, tuple[int, ...]]:
    """Map canonical names to PyTorch shapes: convolutions (out, in, k)."""
    shapes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, out: int, into: int, kernel: int = 1) -> None:
        shapes[f"{name}.weight"] = (out, into, kernel)
        shapes[f"{name}.bias"] = (out,)

    width, last, kernels = config.enc_channels[0], config.enc_channels[-1], config.enc_kernel_sizes
    group, bottleneck = width // config.enc_res2net_scale, config.enc_se_channels
    conv("blocks.0.conv", width, config.mel_dim, kernels[0])
    for i in range(1, len(config.enc_channels) - 1):
        conv(f"blocks.{i}.tdnn1.conv", width, width)
        for j in range(config.enc_res2net_scale - 1):
            conv(f"blocks.{i}.res2net_block.blocks.{j}.conv", group, group, kernels[i])
        conv(f"blocks.{i}.tdnn2.conv", width, width)
        conv(f"blocks.{i}.se_block.conv1", bottleneck, width)
        conv(f"blocks.{i}.se_block.conv2", width, bottleneck)
    conv("mfa.conv", last, last, kernels[-1])
    conv("asp.tdnn.conv", config.enc_attention_channels, 3 * last)
    conv("asp.conv", last, config.enc_attention_channels)
    conv("fc", config.enc_dim, 2 * last)
    return shapes


def mel(samples: np.ndarray, config: SpeakerConfig) -> np.ndarray:
    """Compute logarithms of mel amplitudes. (L,) at the config's rate → (L // 256, mel_dim) float32.

    Raises UsageError for a recording that is too short for the encoder.
    """
    if len(samples) < config.least_samples:
        seconds = config.least_samples / config.sample_rate
        raise UsageError(f"recording: {len(samples)} samples are too short; give at least {seconds:.2g} s")
    padded = np.pad(np.asarray(samples, np.float64), PADDING, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, N_FFT)[::HOP]
    spectrum = np.fft.rfft(frames * periodic_hann(N_FFT), axis=1)
    amplitude = np.sqrt(spectrum.real**2 + spectrum.imag**2 + LEAST_POWER)
    bands = amplitude @ mel_filters(config.sample_rate, N_FFT, config.mel_dim).T
    return np.log(np.maximum(bands, LEAST_MEL)).astype(np.float32)
