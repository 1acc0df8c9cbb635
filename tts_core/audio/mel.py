"""Mel spectrograms and the matrix of an inverse Fourier transform, in NumPy and float64.

Mel: power, linear amplitude, Slaney's scale, no logarithm. Malcolm Slaney, "Auditory Toolbox", 1998; the same
numbers as librosa 0.11's `feature.melspectrogram`, rewritten. It runs on the host: a voice is read once, its
spectrum is a few hundred kB, and several devices lack a Fourier transform or compute it incorrectly
(torch_ref/limits).
"""

from __future__ import annotations

from functools import cache

import numpy as np

LINEAR_STEP = 200 / 3  # Hz per mel below 1000 Hz
LOG_START = 1000.0  # Hz; above, equal steps are equal ratios
LOG_STEP = np.log(6.4) / 27  # log-frequency per mel above that


def slaney_mels(frequencies: np.ndarray) -> np.ndarray:
    """Convert Hz to Slaney's mels."""
    f = np.asarray(frequencies, np.float64)
    above = LOG_START / LINEAR_STEP + np.log(np.maximum(f, LOG_START) / LOG_START) / LOG_STEP
    return np.where(f < LOG_START, f / LINEAR_STEP, above)


def slaney_frequencies(mels: np.ndarray) -> np.ndarray:
    """Convert Slaney's mels to Hz."""
    m = np.asarray(mels, np.float64)
    start = LOG_START / LINEAR_STEP
    return np.where(m < start, m * LINEAR_STEP, LOG_START * np.exp(LOG_STEP * np.maximum(m - start, 0)))


@cache
def mel_filters(sample_rate: int, n_fft: int, n_mels: int) -> np.ndarray:
    """Build triangles from 0 Hz to half the sample rate, of area 1 over Hz. (n_mels, n_fft // 2 + 1) float64.

    Read-only, as all callers share it.
    """
    top = slaney_mels(np.array(sample_rate / 2))
    corners = slaney_frequencies(np.linspace(0, float(top), n_mels + 2))
    bins = np.arange(n_fft // 2 + 1) * (sample_rate / n_fft)
    rise = (bins - corners[:-2, None]) / (corners[1:-1] - corners[:-2])[:, None]
    fall = (corners[2:, None] - bins) / (corners[2:] - corners[1:-1])[:, None]
    area = 2 / (corners[2:] - corners[:-2])[:, None]
    filters = np.maximum(0, np.minimum(rise, fall)) * area
    filters.flags.writeable = False
    return filters


def mel_power(
    samples: np.ndarray, sample_rate: int, *, n_fft: int, hop_length: int, n_mels: int
) -> np.ndarray:
    """Compute the power in each mel band around every hop_length-th sample, from the first.

    samples: (L,), padded with zeros at both ends.  Returns (L // hop_length + 1, n_mels) float32.
    """
    padded = np.pad(np.asarray(samples, np.float64), n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop_length]
    spectrum = np.fft.rfft(frames * periodic_hann(n_fft), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return (power @ mel_filters(sample_rate, n_fft, n_mels).T).astype(np.float32)


def periodic_hann(length: int) -> np.ndarray:
    """Compute a periodic Hann window, (length,) float64, as torch.hann_window does."""
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)


def inverse_basis(window: np.ndarray, hop_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Build the matrix from stacked real and imaginary parts to windowed frames, and the squared window.

    window: (n_fft,) float64. Returns (2 (n_fft/2 + 1), R hop_length) and (R hop_length,), zero-padded to R
    whole hops. The imaginary parts of bin 0, and of the last bin if n_fft is even, have no effect, as in
    numpy.fft.irfft.
    Raises ValueError if windows hop_length apart leave samples without weight.
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
