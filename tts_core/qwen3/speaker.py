"""Qwen3-TTS's speaker encoder: configuration, tensor names and the mel front end.

Source: QwenLM/Qwen3-TTS@022e286, Apache-2.0. Network: Desplanques et al. 2020, "ECAPA-TDNN",
arXiv:2005.07143.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tts_core.audio.mel import mel_filters, periodic_hann
from tts_core.config import Config, FileForm, Sizes, at
from tts_core.errors import UsageError
from tts_core.shapes import Module, Shapes, biased, shapes

N_FFT, HOP, LEAST_POWER, LEAST_MEL = 1024, 256, 1e-9, 1e-5
PADDING = (N_FFT - HOP) // 2  # reflected at both ends


class SpeakerConfig(Config, title="Qwen3-TTS speaker config"):
    """Shape of the speaker encoder. Numbers only: no dtype, device or path.

    A published config.json has `enc_dim` and `sample_rate`; the rest are the original's defaults.
    """

    sample_rate: int = at(otherwise=24000)  # Hz
    mel_dim: int = at(otherwise=128)
    enc_dim: int = at(otherwise=1024)  # width of the speaker's vector
    # of the blocks, and of their sum at last
    enc_channels: Sizes = at(otherwise=(512, 512, 512, 512, 1536))
    enc_kernel_sizes: Sizes = at(otherwise=(5, 3, 3, 3, 1))
    enc_dilations: Sizes = at(otherwise=(1, 2, 3, 4, 1))
    enc_attention_channels: int = at(otherwise=128)
    enc_res2net_scale: int = at(otherwise=8)  # groups of a block's channels
    enc_se_channels: int = at(otherwise=128)

    def faults(self) -> Iterator[str]:
        """Check the sizes of the blocks."""
        sizes = self.enc_channels, self.enc_kernel_sizes, self.enc_dilations
        if len({len(size) for size in sizes}) != 1 or len(self.enc_channels) < 3:
            yield "one size, kernel and dilation a block are needed"
            return
        if any(kernel % 2 == 0 for kernel in self.enc_kernel_sizes):
            yield f"kernels {self.enc_kernel_sizes} must be odd"
        blocks = self.enc_channels[:-1]
        if len(set(blocks)) != 1 or blocks[0] % self.enc_res2net_scale or self.enc_res2net_scale < 2:
            yield (
                f"blocks of {blocks} channels in {self.enc_res2net_scale} groups; "
                "all must be equal, and a multiple of more than one group"
            )
        if self.enc_channels[-1] != blocks[0] * (len(blocks) - 1):
            yield f"{self.enc_channels[-1]} channels for {len(blocks) - 1} blocks"

    @property
    def least_frames(self) -> int:
        """Fewest mel frames: the widest reflected padding needs one more than it repeats."""
        pairs = zip(self.enc_kernel_sizes, self.enc_dilations, strict=True)
        return max((kernel - 1) * dilation // 2 for kernel, dilation in pairs) + 1

    @property
    def least_samples(self) -> int:
        """Fewest samples of a recording: those of the mel frames, and one more than is repeated at an end."""
        return max(self.least_frames * HOP, PADDING + 1)


DEFAULT = SpeakerConfig.read(FileForm("defaults"), {})


def parameter_shapes(config: SpeakerConfig) -> Shapes:
    """Map canonical names to PyTorch shapes."""
    width, last, kernels = config.enc_channels[0], config.enc_channels[-1], config.enc_kernel_sizes
    scale, bottleneck, inner = config.enc_res2net_scale, config.enc_se_channels, config.enc_attention_channels
    square, group = biased(width, width, 1), width // scale
    blocks: list[Module] = [{"conv": biased(width, config.mel_dim, kernels[0])}]
    for kernel in kernels[1:-1]:
        block = {
            "tdnn1.conv": square,
            "res2net_block.blocks": [{"conv": biased(group, group, kernel)}] * (scale - 1),
            "tdnn2.conv": square,
            "se_block.conv1": biased(bottleneck, width, 1),
            "se_block.conv2": biased(width, bottleneck, 1),
        }
        blocks.append(block)
    return shapes(
        {
            "blocks": blocks,
            "mfa.conv": biased(last, last, kernels[-1]),
            "asp.tdnn.conv": biased(inner, 3 * last, 1),
            "asp.conv": biased(last, inner, 1),
            "fc": biased(config.enc_dim, 2 * last, 1),
        }
    )


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
