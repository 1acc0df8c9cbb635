"""Spectral distances between waveforms.

Source: descriptinc/descript-audio-codec dac/nn/loss.py MelSpectrogramLoss (MIT); own implementation with
seven windows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

WINDOWS = {32: 5, 64: 10, 128: 20, 256: 40, 512: 80, 1024: 120, 2048: 200}  # samples: mel bands
FLOOR = 1e-5


def mel_filters(n_fft: int, bands: int, sample_rate: int) -> np.ndarray:
    """Build triangles evenly spaced in mel, each at least one bin wide. (bins, bands) float32."""
    bins = np.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    width = sample_rate / n_fft
    center = edges[1:-1]
    left, right = np.minimum(edges[:-2], center - width), np.maximum(edges[2:], center + width)
    rising = (bins[:, None] - left) / (center - left)
    falling = (right - bins[:, None]) / (right - center)
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class MelDistance(nn.Module):
    """Mean absolute difference of log10 mel magnitudes, averaged over the windows."""

    def __init__(self, sample_rate: int):
        super().__init__()
        for n_fft, bands in WINDOWS.items():
            filters = torch.from_numpy(mel_filters(n_fft, bands, sample_rate))
            self.register_buffer(f"filters{n_fft}", filters, persistent=False)
            self.register_buffer(f"window{n_fft}", torch.hann_window(n_fft), persistent=False)

    def forward(self, made: Tensor, wanted: Tensor) -> Tensor:
        """Compare two waveforms. (B, L) float32 each → scalar."""
        both = torch.cat((made, wanted))
        total = made.new_zeros(())
        for n_fft in WINDOWS:
            a, b = self.log_mel(both, n_fft).chunk(2)
            total = total + (a - b).abs().mean()
        return total / len(WINDOWS)

    def log_mel(self, samples: Tensor, n_fft: int) -> Tensor:
        """Compute log10 of mel magnitudes. (B, L) → (B, T, bands)."""
        window, filters = self.get_buffer(f"window{n_fft}"), self.get_buffer(f"filters{n_fft}")
        spectrum = torch.stft(
            samples, n_fft, n_fft // 4, window=window, normalized=False, return_complex=True
        )
        magnitude = torch.sqrt(spectrum.real.square() + spectrum.imag.square() + 1e-12)
        return torch.log10((magnitude.transpose(1, 2) @ filters).clamp_min(FLOOR))
