"""Speech recognition with pocketsphinx, word errors per turn, and pitch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

SAMPLE_RATE = 16000
FRAME = SAMPLE_RATE // 100  # pocketsphinx counts in hundredths of a second


class Heard(NamedTuple):
    """Recognized word and its place in the samples."""

    word: str
    start: int
    stop: int


class TurnScore(NamedTuple):
    """Score of a turn.

    words: of the text.  errors: substitutions, deletions and insertions.  pitch: median Hz or 0.
    """

    words: int
    errors: int
    pitch: float


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words without tags and punctuation."""
    return re.findall(r"[a-z']+", re.sub(r"\[S\d\]", " ", text).lower())


@lru_cache(maxsize=1)
def _decoder() -> Any:
    from pocketsphinx import Decoder  # pyright: ignore[reportMissingImports]

    return Decoder(samprate=SAMPLE_RATE, loglevel="FATAL")


def hear(samples: np.ndarray) -> list[Heard]:
    """Recognize the words in (L,) float samples at 16 kHz."""
    decoder = _decoder()
    quiet = np.zeros(SAMPLE_RATE // 5)
    padded = np.concatenate([quiet, np.clip(samples, -1, 1) * 32767, quiet]).astype(np.int16)
    decoder.start_utt()
    decoder.process_raw(padded.tobytes(), full_utt=True)
    decoder.end_utt()
    heard = []
    for segment in decoder.seg() or ():
        word = re.sub(r"\(\d+\)$", "", segment.word)
        if re.match(r"[a-z]", word):
            start, stop = (
                frame * FRAME - len(quiet) for frame in (segment.start_frame, segment.end_frame + 1)
            )
            heard.append(Heard(word, max(0, start), max(0, stop)))
    return heard


def aligned(wanted: Sequence[str], heard: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Align words with the fewest errors: pairs of places, None for a word without a partner."""
    cost = np.zeros((len(wanted) + 1, len(heard) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(wanted) + 1), np.arange(len(heard) + 1)
    for i, word in enumerate(wanted, start=1):
        for j, other in enumerate(heard, start=1):
            cost[i, j] = min(cost[i - 1, j - 1] + (word != other), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    pairs: list[tuple[int | None, int | None]] = []
    i, j = len(wanted), len(heard)
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (wanted[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            pairs.append((i, None))
        else:
            j -= 1
            pairs.append((None, j))
    return pairs[::-1]


def score(turns: Sequence[str], samples: np.ndarray) -> list[TurnScore]:
    """Score the turns of a text in samples; an inserted word counts against the turn it occurs in."""
    heard, wanted = hear(samples), [words_of(turn) for turn in turns]
    flat = [word for words in wanted for word in words]
    owner = [turn for turn, words in enumerate(wanted) for _ in words]
    errors, spans, current = [0] * len(turns), [[] for _ in turns], 0
    for i, j in aligned(flat, [one.word for one in heard]):
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
    return 100 * sum(one.errors for one in scores) / max(1, sum(one.words for one in scores))


def interval(scores: Sequence[Sequence[TurnScore]], seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the word error rate over texts, in percent: (low, high)."""
    rng = np.random.default_rng(seed)
    errors = np.array([sum(one.errors for one in turns) for turns in scores])
    words = np.array([sum(one.words for one in turns) for turns in scores])
    drawn = rng.integers(len(scores), size=(1000, len(scores)))
    rates = 100 * errors[drawn].sum(1) / words[drawn].sum(1)
    return float(np.percentile(rates, 2.5)), float(np.percentile(rates, 97.5))


def paired_interval(
    ours: Sequence[Sequence[TurnScore]], theirs: Sequence[Sequence[TurnScore]], seed: int = 0
) -> tuple[float, float]:
    """95 % bootstrap interval of the difference ours - theirs of word error rates, in points: (low, high).

    Both are scores of the same texts in the same order; a text is drawn for both at once.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(ours), size=(1000, len(ours)))
    rates = []
    for scores in (ours, theirs):
        errors = np.array([sum(one.errors for one in turns) for turns in scores])
        words = np.array([sum(one.words for one in turns) for turns in scores])
        rates.append(100 * errors[drawn].sum(1) / words[drawn].sum(1))
    differences = rates[0] - rates[1]
    return float(np.percentile(differences, 2.5)), float(np.percentile(differences, 97.5))
