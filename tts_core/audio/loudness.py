"""Loudness of speech by ITU-R BS.1770-4, and its change to a target with a soft limit.

Filters and gates as in torchaudio.functional.loudness (BSD-2) for one channel, written anew. Differs from
upstream: float64; a wave without a block of sound is left alone, where upstream's result is not a number.
"""

from __future__ import annotations

from functools import cache

import numpy as np

TARGET = -14.0  # LUFS
BLOCK_SECONDS, STEP_SECONDS = 0.4, 0.1
ABSOLUTE_GATE, RELATIVE_GATE = -70.0, -10.0  # LUFS, LU
OFFSET = -0.691  # LU: what the first filter adds at 997 Hz
QUIETEST = 2e-3  # RMS below which a wave is left as it is


def normalize_loudness(samples: np.ndarray, sample_rate: int, *, target: float = TARGET) -> np.ndarray:
    """tanh of the samples brought to `target` LUFS. (L,) → (L,) float32, in -1 … 1.

    A wave quieter than QUIETEST, without a block of sound (all shorter than 0.4 s), or with NaN or infinity
    comes back unchanged.
    """
    wave = np.asarray(samples, np.float64)
    if not np.isfinite(wave).all():
        return np.asarray(samples, np.float32)
    loudness = integrated_loudness(wave, sample_rate)
    if not np.isfinite(loudness) or np.sqrt(np.mean(wave**2)) < QUIETEST:
        return np.asarray(samples, np.float32)
    return np.tanh(wave * 10 ** ((target - loudness) / 20)).astype(np.float32)


def integrated_loudness(samples: np.ndarray, sample_rate: int) -> float:
    """Loudness in LUFS of (L,) samples; minus infinity where no block of 0.4 s is above the gates."""
    wave = _biquad(np.asarray(samples, np.float64), *_high_shelf(sample_rate, 4.0, 1500.0, 0.5**0.5))
    wave = _biquad(wave, *_high_pass(sample_rate, 38.0, 0.5))
    block, step = round(BLOCK_SECONDS * sample_rate), round(STEP_SECONDS * sample_rate)
    if len(wave) < block:
        return -np.inf
    energy = np.lib.stride_tricks.sliding_window_view(wave**2, block)[::step].mean(axis=1)
    kept = energy[_loudness(energy) > ABSOLUTE_GATE]
    if len(kept):
        kept = kept[_loudness(kept) > _loudness(kept.mean()) + RELATIVE_GATE]
    return float(_loudness(kept.mean())) if len(kept) else -np.inf


def _loudness(energy: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return OFFSET + 10 * np.log10(energy)


Coefficients = tuple[tuple[float, ...], tuple[float, ...]]  # of the inputs, of the outputs


def _high_shelf(sample_rate: int, gain_db: float, frequency: float, q: float) -> Coefficients:
    """Robert Bristow-Johnson's cookbook."""
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
    """Robert Bristow-Johnson's cookbook."""
    w = 2 * np.pi * frequency / sample_rate
    cosine, alpha = np.cos(w), np.sin(w) / (2 * q)
    return ((1 + cosine) / 2, -(1 + cosine), (1 + cosine) / 2), (1 + alpha, -2 * cosine, 1 - alpha)


def _biquad(wave: np.ndarray, b: tuple[float, ...], a: tuple[float, ...]) -> np.ndarray:
    """The filter's output, clamped to ±1: its impulse response, followed until it has died away, by FFT."""
    response = _response(b, a)
    size = 1 << (len(wave) + len(response) - 1).bit_length()
    product = np.fft.rfft(wave, size) * np.fft.rfft(response, size)
    return np.clip(np.fft.irfft(product, size)[: len(wave)], -1, 1)


@cache
def _response(b: tuple[float, ...], a: tuple[float, ...]) -> np.ndarray:
    """What follows an impulse, until the slower pole has fallen to 1e-16 of where it began."""
    radius = float(np.abs(np.roots(a)).max())
    length = int(1.2 * np.log(1e-16) / np.log(radius)) + 3  # 1.2: a double pole decays as n r^n
    out = np.zeros(length)
    for n in range(length):
        out[n] = (b[n] if n < 3 else 0.0) - sum(a[k] * out[n - k] for k in (1, 2) if n >= k)
        out[n] /= a[0]
    return out
