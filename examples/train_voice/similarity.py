"""Similarity of two voices: cosine of mean log-mel statistics, and median pitch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from examples.train_voice.listening import SAMPLE_RATE, pitch
from examples.train_voice.spectral import mel_filters

SIZE, BANDS = 1024, 40  # of the spectrogram: samples of a window (four times its step), mel bands
QUIET = 2.0  # powers of ten below the loudest frame's magnitude that count as silence


class Voiceprint(NamedTuple):
    """Statistics of a voice.

    spectrum: (2 BANDS,), mean and standard deviation of each band's log-mel, each with its mean over bands
    subtracted.  pitch: median Hz, 0 if nothing is voiced.
    """

    spectrum: np.ndarray
    pitch: float


@lru_cache
def filters() -> np.ndarray:
    """Mel filters, (bins, BANDS)."""
    return mel_filters(SIZE, BANDS, SAMPLE_RATE)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Compute log10 of mel magnitudes. (L,) at 16 kHz → (T, BANDS)."""
    padded = np.pad(samples.astype(np.float64), SIZE // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, SIZE)[:: SIZE // 4]
    return np.log10(np.abs(np.fft.rfft(frames * np.hanning(SIZE))) @ filters() + 1e-5)


def voiceprint(samples: np.ndarray) -> Voiceprint:
    """Measure a voice in some seconds of speech. (L,) at 16 kHz."""
    if not len(samples):
        return Voiceprint(np.zeros(2 * BANDS), 0.0)
    bands = log_mel(samples)
    loudness = bands.mean(1)
    speech = bands[loudness > loudness.max() - QUIET]
    means, spreads = speech.mean(0), speech.std(0)
    return Voiceprint(np.concatenate([means - means.mean(), spreads - spreads.mean()]), pitch(samples))


def similarity(first: Voiceprint, other: Voiceprint) -> float:
    """Cosine of the two spectra, -1 to 1."""
    sizes = np.linalg.norm(first.spectrum) * np.linalg.norm(other.spectrum)
    return float(first.spectrum @ other.spectrum / max(sizes, 1e-12))


def similarities(firsts: Sequence[Voiceprint], others: Sequence[Voiceprint]) -> float:
    """Mean similarity over pairs."""
    return float(np.mean([similarity(first, other) for first, other in zip(firsts, others, strict=True)]))


def median_pitch(prints: Sequence[Voiceprint]) -> float:
    """Median pitch of voiced prints in Hz; 0 if there are none."""
    found = [own_print.pitch for own_print in prints if own_print.pitch]
    return float(np.median(found)) if found else 0.0
