"""Mel spectrograms in NumPy: power, linear amplitude, Slaney's scale. No logarithm.

Malcolm Slaney, "Auditory Toolbox", 1998; the same numbers as librosa 0.11's `feature.melspectrogram`, written
anew, in float64 until the end. It stays on the host: a voice is read once, its spectrum is a few hundred kB,
and a Fourier transform is what several of the devices lack or do wrongly (torch_ref/limits).
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tts_core.audio.fourier import periodic_hann

LINEAR_STEP = 200 / 3  # Hz a mel below 1000 Hz
LOG_START = 1000.0  # Hz; above, equal steps are equal ratios
LOG_STEP = np.log(6.4) / 27  # of the frequency's logarithm, a mel


def slaney_mels(frequencies: np.ndarray) -> np.ndarray:
    """Hz to Slaney's mels."""
    f = np.asarray(frequencies, np.float64)
    above = LOG_START / LINEAR_STEP + np.log(np.maximum(f, LOG_START) / LOG_START) / LOG_STEP
    return np.where(f < LOG_START, f / LINEAR_STEP, above)


def slaney_frequencies(mels: np.ndarray) -> np.ndarray:
    """Slaney's mels to Hz."""
    m = np.asarray(mels, np.float64)
    start = LOG_START / LINEAR_STEP
    return np.where(m < start, m * LINEAR_STEP, LOG_START * np.exp(LOG_STEP * np.maximum(m - start, 0)))


@cache
def mel_filters(sample_rate: int, n_fft: int, n_mels: int) -> np.ndarray:
    """Triangles from 0 Hz to half the sample rate, each of area 1 over Hz. (n_mels, n_fft // 2 + 1) float64.

    Read-only: it is shared by all callers.
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
    """Power in each mel band around every hop_length-th sample, the first sample included.

    samples: (L,), taken as silent beyond both ends.  Returns (L // hop_length + 1, n_mels) float32.
    """
    padded = np.pad(np.asarray(samples, np.float64), n_fft // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, n_fft)[::hop_length]
    spectrum = np.fft.rfft(frames * periodic_hann(n_fft), axis=1)
    power = spectrum.real**2 + spectrum.imag**2
    return (power @ mel_filters(sample_rate, n_fft, n_mels).T).astype(np.float32)
