"""Find the ends of a dialogue's turns in its sound: pauses near the times expected from their texts.

Networks that give no times of words speak several turns in one piece. Its sentences are laid over the sound:
each may end in a pause, a long one rather than a short one, and should be about as long as its words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from tts_core.text.captions import without_tag
from tts_core.text.duration import expected_seconds

STEPS = 100  # levels a second
QUIET_DB = 25.0  # below the speech: a pause
LOUD = 90  # percentile of the levels that is speech
SHORTEST = 3  # levels of a pause
LONGEST = 0.4  # seconds of a pause; a longer one is no better
MOST = 200  # pauses that are considered, the longest

_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’»)]*\s+")


class Levels:
    """Levels of a sound that comes in chunks, STEPS a second."""

    def __init__(self, sample_rate: int):
        self.hop = sample_rate // STEPS
        self._rest = np.zeros(0, np.float32)
        self._found: list[np.ndarray] = []

    def add(self, samples: np.ndarray) -> None:
        """Take the next (L,) samples."""
        samples = np.concatenate([self._rest, samples])
        whole = len(samples) - len(samples) % self.hop
        frames = samples[:whole].reshape(-1, self.hop)
        self._found.append(np.mean(frames * frames, axis=1))
        self._rest = samples[whole:]

    def decibels(self) -> np.ndarray:
        """(N,) levels so far."""
        power = np.concatenate([np.zeros(0, np.float32), *self._found])
        return 10 * np.log10(np.maximum(power, 1e-10))


def turn_ends(texts: Sequence[str], decibels: np.ndarray) -> list[float]:
    """Return the seconds at which each turn but the last ends, in the middle of a pause if one is near.

    texts: of the turns, with tags.  decibels: (N,) levels of their sound.
    """
    parts = [_SENTENCE.split(without_tag(text)) for text in texts]
    lasts = [*accumulate(map(len, parts))][:-1]  # sentences before the end of each turn
    wanted = np.array([expected_seconds(part) + 0.1 for own in parts for part in own])
    start, stop, pauses = _pauses(decibels)
    wanted *= (stop - start) / STEPS / wanted.sum()
    expected = start / STEPS + np.cumsum(wanted)[:-1]
    weights = [1 + (sentence in lasts) for sentence in range(1, len(wanted))]
    ends = _laid(wanted, expected, pauses, weights, start / STEPS, stop / STEPS)
    return [ends[last - 1] for last in lasts]


def _pauses(decibels: np.ndarray) -> tuple[int, int, list[tuple[float, float]]]:
    """First level and last + 1 of the speech, and the pauses in it: their middles and lengths, in seconds."""
    if not len(decibels):
        return 0, 0, []
    loud = decibels > np.percentile(decibels, LOUD) - QUIET_DB
    sounding = np.flatnonzero(loud)
    gaps = [(a + 1, b) for a, b in pairwise(sounding.tolist()) if b - a > SHORTEST]
    gaps = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST])
    pauses = [((a + b) / 2 / STEPS, (b - a) / STEPS) for a, b in gaps]
    return int(sounding[0]), int(sounding[-1]) + 1, pauses


def _laid(
    wanted: np.ndarray,
    expected: np.ndarray,
    pauses: Sequence[tuple[float, float]],
    weights: Sequence[int],
    start: float,
    stop: float,
) -> list[float]:
    """Choose the ends of all sentences but the last: a path of least cost through pauses and expected ends.

    wanted: (S,) seconds of each sentence.
    expected: (S - 1,) its ends if all speak alike fast.
    weights: S - 1, how much a pause counts at each end; at the end of a turn it counts twice.
    """
    candidates = sorted([*pauses, *((float(end), 0.0) for end in expected)])
    at = np.array([time for time, _ in candidates])
    gain = np.array([2 + 2 * min(length, LONGEST) / LONGEST if length else 0.0 for _, length in candidates])
    cost, before = _cost(at - start, wanted[0]) - weights[0] * gain, list[np.ndarray]()
    for seconds, weight in zip(wanted[1:-1], weights[1:], strict=True):
        steps = cost[:, None] + _cost(at[None, :] - at[:, None], seconds)
        before.append(steps.argmin(axis=0))
        cost = steps.min(axis=0) - weight * gain
    chosen = [int((cost + _cost(stop - at, wanted[-1])).argmin())]
    for back in reversed(before):
        chosen.insert(0, int(back[chosen[0]]))
    return [float(at[time]) for time in chosen]


def _cost(seconds: np.ndarray, wanted: float) -> np.ndarray:
    """Cost of a sentence's length; one that ends before it begins is out of the question."""
    off = (seconds - wanted) / (0.35 * wanted + 0.25)
    return np.where(seconds > 0, off * off, 1e9)
