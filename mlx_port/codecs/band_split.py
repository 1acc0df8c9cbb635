"""Split sound into bands that add up to it exactly, and match the level of each band to a reference.

Definition: adefossez/julius 0.2.7 (MIT) bands.py; facebookresearch/audiocraft (MIT) re_eq. Written anew: the
filters are products of overlapping views, a window of time at a time, no FFT. Differs from upstream: a silent
band is left silent, where upstream divides by zero.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tts_core.audio.bands import lowpass_filters

SILENT = 1e-12  # standard deviation below which a band is not amplified further
WINDOW = 4096  # samples filtered at once: their overlapping views need up to 50 MB
BLOCK = 1024  # samples summed at once: a single long sum loses digits on the CPU


def split_bands(x: mx.array, n_bands: int, sample_rate: int) -> mx.array:
    """Split a signal, extended by its end values, into bands. (B, L) → (B, n_bands, L), lowest band first."""
    filters = mx.array(lowpass_filters(n_bands, sample_rate).astype(np.float32))
    half = filters.shape[1] // 2
    padded = mx.pad(x, [(0, 0), (half, half)], mode="edge")
    low = mx.concatenate(
        [
            _filtered(padded[:, start : start + WINDOW + 2 * half], filters)
            for start in range(0, x.shape[1], WINDOW)
        ],
        axis=2,
    )
    return mx.concatenate([low[:, :1], low[:, 1:] - low[:, :-1], x[:, None] - low[:, -1:]], axis=1)


def match_levels(
    wave: mx.array, reference: mx.array, sample_rate: int, *, n_bands: int = 32, strictness: float = 1.0
) -> mx.array:
    """Scale each band of `wave` to the reference's standard deviation. (L,), (L',) → (L,).

    strictness: exponent of the gains; 0 changes nothing, 1 matches fully.
    """
    bands = split_bands(wave[None], n_bands, sample_rate)[0]
    wanted = _deviation(split_bands(reference[None], n_bands, sample_rate)[0])
    gains = (wanted / mx.maximum(_deviation(bands), SILENT)) ** strictness
    return (bands * gains).sum(axis=0)


def _filtered(x: mx.array, filters: mx.array) -> mx.array:
    """Apply N filters. (B, T), (N, K) → (B, N, T - K + 1)."""
    taps = filters.shape[1]
    steps = x.shape[1] - taps + 1
    views = mx.as_strided(x, (x.shape[0], steps, taps), (x.shape[1], 1, 1))
    low = (views @ filters.T).transpose(0, 2, 1)
    mx.eval(low)  # else the views of all windows are in memory at once
    return low


def _deviation(bands: mx.array) -> mx.array:
    """(N, L) → (N, 1), unbiased."""
    length = bands.shape[1]
    centered = bands - _sum(bands) / length
    return mx.sqrt(_sum(centered.square()) / (length - 1))


def _sum(x: mx.array) -> mx.array:
    """Compute the unbiased standard deviation, block by block. (N, L) → (N, 1)."""
    blocks = mx.pad(x, [(0, 0), (0, -x.shape[1] % BLOCK)]).reshape(x.shape[0], -1, BLOCK)
    return blocks.sum(axis=2).sum(axis=1, keepdims=True)
