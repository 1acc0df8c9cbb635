"""Word errors per turn of a dialogue, and pitch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tts_core.judges.statistics import ratio_interval
from tts_core.judges.words import SAMPLE_RATE, aligned, hear, words_of


class TurnScore(NamedTuple):
    """Score of a turn.

    words: of the text.  errors: substitutions, deletions and insertions.  pitch: median Hz or 0.
    """

    words: int
    errors: int
    pitch: float


def score(turns: Sequence[str], samples: np.ndarray) -> list[TurnScore]:
    """Score the turns of a text in samples; an inserted word counts against the turn it occurs in."""
    heard, wanted = hear(samples), [words_of(turn) for turn in turns]
    flat = [word for words in wanted for word in words]
    owner = [turn for turn, words in enumerate(wanted) for _ in words]
    errors, spans, current = [0] * len(turns), [[] for _ in turns], 0
    for i, j in aligned(flat, [result.word for result in heard]):
        current = current if i is None else owner[i]
        right = i is not None and j is not None and flat[i] == heard[j].word
        errors[current] += not right
        if i is not None and j is not None:
            spans[current].append(heard[j])
    return [
        TurnScore(len(words), wrong, pitch(samples[span[0].start : span[-1].stop]) if span else 0.0)
        for words, wrong, span in zip(wanted, errors, spans, strict=True)
    ]


def pitch(samples: np.ndarray) -> float:
    """Median pitch of voiced frames, 60 to 350 Hz, by autocorrelation; 0 without voiced frames."""
    size, step = SAMPLE_RATE // 20, SAMPLE_RATE // 100
    if len(samples) < size:
        return 0.0
    frames = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), size)[::step]
    frames = (frames - frames.mean(1, keepdims=True)) * np.hanning(size)
    spectrum = np.abs(np.fft.rfft(frames, 2 * size)) ** 2
    correlation = np.fft.irfft(spectrum)[:, :size]
    taper = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(size), 2 * size)) ** 2)[:size]
    correlation = correlation / np.maximum(correlation[:, :1], 1e-9) / (taper / taper[0])
    low, high = SAMPLE_RATE // 350, SAMPLE_RATE // 60
    best = correlation[:, low:high].max(1)
    # the shortest lag that is nearly the best, to avoid octave errors
    lag = low + (correlation[:, low:high] > 0.9 * best[:, None]).argmax(1)
    loud = (frames**2).mean(1) > 0.1 * (frames**2).mean()
    voiced = (best > 0.5) & loud
    return float(np.median(SAMPLE_RATE / lag[voiced])) if voiced.any() else 0.0


def word_error_rate(scores: Sequence[TurnScore]) -> float:
    """Word error rate over all words, in percent."""
    return 100 * sum(score.errors for score in scores) / max(1, sum(score.words for score in scores))


def interval(scores: Sequence[Sequence[TurnScore]]) -> tuple[float, float]:
    """95 % bootstrap interval of the word error rate over texts, in percent: (low, high)."""
    return ratio_interval(*counts(scores), scale=100)


def counts(scores: Sequence[Sequence[TurnScore]]) -> tuple[list[int], list[int]]:
    """Errors and words of each text."""
    return [sum(turn.errors for turn in turns) for turns in scores], [
        sum(turn.words for turn in turns) for turns in scores
    ]
