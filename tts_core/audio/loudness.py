"""Loudness of speech by ITU-R BS.1770-4, and normalization to a target with a soft limit.

Filters and gates as in torchaudio.functional.loudness (BSD-2) for one channel, rewritten. Differs from
upstream: float64; a waveform without a block of sound is unchanged, where upstream returns NaN.
"""

from __future__ import annotations

from functools import cache

import numpy as np

TARGET = -14.0  # LUFS
BLOCK_SECONDS, STEP_SECONDS = 0.4, 0.1
ABSOLUTE_GATE, RELATIVE_GATE = -70.0, -10.0  # LUFS, LU
OFFSET = -0.691  # LU: compensates the first filter's gain at 997 Hz
QUIETEST = 2e-3  # RMS below which a waveform is unchanged


def normalize_loudness(samples: np.ndarray, sample_rate: int, *, target: float = TARGET) -> np.ndarray:
    """Scale samples to `target` LUFS and apply tanh. (L,) → (L,) float32, in -1 … 1.

    A waveform quieter than QUIETEST, without a block of sound (all shorter than 0.4 s), or with NaN or
    infinity is returned unchanged.
    """
    wave = np.asarray(samples, np.float64)
    if not np.isfinite(wave).all():
        return np.asarray(samples, np.float32)
    loudness = integrated_loudness(wave, sample_rate)
    if not np.isfinite(loudness) or np.sqrt(np.mean(wave**2)) < QUIETEST:
        return np.asarray(samples, np.float32)
    return np.tanh(wave * 10 ** ((target - loudness) / 20)).astype(np.float32)


def integrated_loudness(samples: np.ndarray, sample_rate: int) -> float:
    """Measure the loudness of (L,) samples in LUFS; minus infinity if no 0.4 s block is above the gates."""
    wave = _biquad(np.asarray(samples, np.float64), *_high_shelf(sample_rate, 4.0, 1500.0, 0.5**0.5))
    wave = _biquad(wave, *_high_pass(sample_rate, 38.0, 0.5))
    block, step = round(BLOCK_SECONDS * sample_rate), round(STEP_SECONDS * sample_rate)
    if len(wave) < block:
        return -np.inf
    energy = np.lib.stride_tricks.sliding_window_view(wave**2, block)[::step].mean(axis=1)
    loud = energy[_loudness(energy) > ABSOLUTE_GATE]
    if len(loud):
        loud = loud[_loudness(loud) > _loudness(loud.mean()) + RELATIVE_GATE]
    return float(_loudness(loud.mean())) if len(loud) else -np.inf


def _loudness(energy: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return OFFSET + 10 * np.log10(energy)


Coefficients = tuple[tuple[float, ...], tuple[float, ...]]  # of inputs and outputs


def _high_shelf(sample_rate: int, gain_db: float, frequency: float, q: float) -> Coefficients:
    """Compute a high-shelf filter (Robert Bristow-Johnson's cookbook)."""
    a, w = 10 ** (gain_db / 40), 2 * np.pi * frequency / sample_rate
    cosine, slope = np.cos(w), 2 * a**0.5 * np.sin(w) / (2 * q)
    plus, minus = a + 1, a - 1
    b = (
        a * (plus + minus * cosine + slope),
        -2 * a * (minus + plus * cosine),
        a * (plus + minus * cosine - slope),
    )
    return b, (plus - minus * cosine + slope, 2 * (minus - plus * cosine), plus - minus * cosine - slope)


def _high_pass(sample_rate: int, frequency: float, q: float) -> Coefficients:
    """Compute a high-pass filter (Robert Bristow-Johnson's cookbook)."""
    w = 2 * np.pi * frequency / sample_rate
    cosine, alpha = np.cos(w), np.sin(w) / (2 * q)
    return ((1 + cosine) / 2, -(1 + cosine), (1 + cosine) / 2), (1 + alpha, -2 * cosine, 1 - alpha)


def _biquad(wave: np.ndarray, b: tuple[float, ...], a: tuple[float, ...]) -> np.ndarray:
    """Filter a waveform and clamp it to ±1, by FFT with the impulse response until it has decayed."""
    response = _response(b, a)
    size = 1 << (len(wave) + len(response) - 1).bit_length()
    product = np.fft.rfft(wave, size) * np.fft.rfft(response, size)
    return np.clip(np.fft.irfft(product, size)[: len(wave)], -1, 1)


@cache
def _response(b: tuple[float, ...], a: tuple[float, ...]) -> np.ndarray:
    """Compute the impulse response until the slower pole has decayed to 1e-16."""
    radius = float(np.abs(np.roots(a)).max())
    length = int(1.2 * np.log(1e-16) / np.log(radius)) + 3  # 1.2: a double pole decays as n r^n
    out = np.zeros(length)
    for n in range(length):
        out[n] = (b[n] if n < 3 else 0.0) - sum(a[k] * out[n - k] for k in (1, 2) if n >= k)
        out[n] /= a[0]
    return out
