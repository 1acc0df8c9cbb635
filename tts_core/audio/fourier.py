"""The matrix of an inverse Fourier transform, in float64."""

from __future__ import annotations

import numpy as np


def periodic_hann(length: int) -> np.ndarray:
    """(length,) float64: half a period short of the symmetric window, as torch.hann_window makes it."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)


def inverse_basis(window: np.ndarray, hop_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrix from stacked real and imaginary parts to windowed frames, and the squared window.

    window: (n_fft,) float64. Returns (2 (n_fft/2 + 1), R hop_length) and (R hop_length,), zeros appended to R
    whole hops. The imaginary parts of bin 0, and of the last bin where n_fft is even, have no effect, as in
    numpy.fft.irfft.
    Raises ValueError where windows hop_length apart leave samples without weight.
    """
    n_fft = len(window)
    if not 0 < hop_length <= n_fft:
        raise ValueError(f"istft: hop_length {hop_length} is outside 1 .. n_fft = {n_fft}")
    padding = -n_fft % hop_length
    weight = np.pad(window**2, (0, padding))
    if weight.reshape(-1, hop_length).sum(0).min() < 1e-11:
        raise ValueError(f"istft: windows of {n_fft} at hop_length {hop_length} leave samples without weight")
    bins = np.arange(n_fft // 2 + 1)
    angle = 2 * np.pi / n_fft * (np.outer(bins, np.arange(n_fft)) % n_fft)  # exact integers before the cosine
    count = np.where((bins == 0) | (2 * bins == n_fft), 1.0, 2.0)[:, None] / n_fft
    basis = np.concatenate([count * np.cos(angle), -count * np.sin(angle)]) * window
    return np.pad(basis, ((0, 0), (0, padding))), weight
