"""Low-pass filters that split a signal into bands, equally spaced in mel, whose sum is exactly the signal.

Definition: adefossez/julius 0.2.7 (MIT) bands.py and lowpass.py, rewritten. Differs from upstream: the
filters are computed in float64.
"""

from __future__ import annotations

from functools import cache

import numpy as np

ZEROS = 8  # zero crossings of the lowest filter's sinc


def band_edges(n_bands: int, sample_rate: int) -> np.ndarray:
    """Compute the band edges in Hz, in equal steps of 2595 log10(1 + f / 700). (n_bands - 1,) float64."""
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    return 700 * (10 ** (np.linspace(0, top, n_bands + 1) / 2595) - 1)[1:-1]


@cache
def lowpass_filters(n_bands: int, sample_rate: int) -> np.ndarray:
    """Build a symmetric filter per edge, all as long as the lowest needs. (n_bands - 1, K) float64, K odd.

    Read-only, as all callers share it. Raises ValueError for fewer than two bands.
    """
    if n_bands < 2:
        raise ValueError(f"{n_bands} bands cannot be split")
    cutoffs = band_edges(n_bands, sample_rate) / sample_rate  # cycles per sample
    half = int(ZEROS / cutoffs.min() / 2)
    times = np.arange(-half, half + 1)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * (times + half) / (2 * half))  # symmetric Hann
    filters = 2 * cutoffs[:, None] * window * np.sinc(2 * cutoffs[:, None] * times)
    filters /= filters.sum(axis=1, keepdims=True)
    filters.flags.writeable = False
    return filters
