"""Features of codec frames from flite's parameters instead of its waveform.

A frame is six rows of parameters, 30 ms. Its features are three groups: the spectrum (mel-cepstra and
strengths of voicing), the pitch, and the phase, which is the position of the pitch pulses. The first two
depend only on text and voice, so a language model can predict them; in the waveform, which a codec's encoder
sees, they are entangled with the third.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from examples.train_voice.flite import CEPSTRUM, SAMPLE_RATE, STRENGTHS, TICK, Spoken
from examples.train_voice.spelling import letters_of

TICKS = 6  # rows of parameters in a frame
HOP = TICKS * TICK
LOUDNESS_WEIGHT = 0.7  # factor of the first coefficient
STRENGTH_WEIGHT = 0.5
PITCH_WEIGHT, VOICED_WEIGHT = 4.0, 0.5
MIDDLE = 130.0  # Hz: halfway between the voices
ANGLES = (HOP // 4, 3 * HOP // 4)  # samples in a frame at which the phase is read

SPECTRUM = TICKS * (CEPSTRUM + STRENGTHS)
PITCH = 2 * TICKS
PHASE = 2 * len(ANGLES)
FEATURES = SPECTRUM + PITCH + PHASE
LEAD, TAIL = 8, 32  # rows kept before and after audible sound
THRESHOLD = 100  # of 32768: audible above this


class Frames(NamedTuple):
    """Frames of an utterance.

    samples: (480 T,) int16.  features: (T, 196).  positions: (T,) the byte of text spoken.  phones: (T,).
    """

    samples: np.ndarray
    features: np.ndarray
    positions: np.ndarray
    phones: np.ndarray


def framed(spoken: Spoken, rng: np.random.Generator) -> Frames:
    """Cut speech into whole frames; no frames if it is inaudible.

    rng: draws the phase of unvoiced frames, from which the decoder may derive noise.
    """
    loud = np.flatnonzero(np.abs(spoken.samples.astype(np.int32)) > THRESHOLD)
    if len(loud) == 0:
        return Frames(spoken.samples[:0], np.zeros((0, FEATURES)), *np.zeros((2, 0), int))
    first = max(0, int(loud[0]) // TICK - LEAD)
    count = -(-(-(-int(loud[-1] + 1) // TICK) + TAIL - first) // TICKS)
    samples = np.zeros(count * HOP, np.int16)
    own = spoken.samples[first * TICK : first * TICK + count * HOP]
    samples[: len(own)] = own
    # the mean of two rows represents the 5 ms between them
    rows = np.minimum(first + np.arange(count * TICKS + 1), len(spoken.pitch) - 1)
    cepstra, strengths = (_between(track[rows]) for track in (spoken.cepstra, spoken.strengths))
    spectrum = np.concatenate([cepstra, STRENGTH_WEIGHT * strengths], axis=1)
    spectrum[:, 0] *= LOUDNESS_WEIGHT
    pitch = spoken.pitch[rows]
    voiced = (pitch[1:] > 0) & (pitch[:-1] > 0)
    height = np.log(np.where(voiced, _between(pitch), MIDDLE) / MIDDLE)
    tones = np.stack([PITCH_WEIGHT * height, VOICED_WEIGHT * voiced], axis=1)
    at = (first * TICK + HOP * np.arange(count)[:, None] + np.array(ANGLES)).ravel()
    cycles = phases(spoken.pitch, at)
    cycles = np.where(np.isnan(cycles), rng.random(len(at)), cycles)
    angles = np.stack([np.cos(2 * np.pi * cycles), np.sin(2 * np.pi * cycles)], axis=1)
    features = [part.reshape(count, -1) for part in (spectrum, tones, angles)]
    middles = (first + TICKS * (np.arange(count) + 0.5)) * TICK / SAMPLE_RATE
    ends = np.array([sound.end for sound in spoken.sounds])
    phones = np.array([sound.phone for sound in spoken.sounds])
    sounding = np.minimum(np.searchsorted(ends, middles), len(ends) - 1)
    spelled = np.array(positions_of(spoken))[sounding]
    return Frames(samples, np.concatenate(features, axis=1), spelled, phones[sounding])


def phases(pitch: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Cycles since the last pitch pulse, 0 to 1, at the given samples; NaN in unvoiced sound.

    Follows flite's vocoder: a pulse after each period, with periods interpolated between rows; a voiced
    stretch begins with a pulse.
    """
    length = (len(pitch) - 1) * TICK
    period = np.where(pitch > 0, SAMPLE_RATE / np.maximum(pitch, 1.0), 0.0)
    whole = (period[1:] > 0) & (period[:-1] > 0)
    steps = np.arange(TICK) / TICK
    periods = (period[:-1, None] + (period[1:] - period[:-1])[:, None] * steps) * whole[:, None]
    periods = np.append(periods.ravel(), 0.0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], whole, [False]]).astype(int))) * TICK
    cycles = np.full(length + 1, np.nan)
    for start, stop in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        pulse, since = start, 1.0
        while pulse < stop:
            guess = pulse + periods[pulse] - since
            guess = pulse + periods[min(int(guess), stop - 1)] - since
            later = min(max(int(np.ceil(guess)), pulse + 1), stop)
            span = np.arange(later - pulse)
            cycles[pulse:later] = (since - 1 + span) / periods[pulse:later]
            since = since + later - pulse - periods[min(later, stop - 1)]
            pulse = later
    inside = np.clip(at, 0, length)
    return np.where((at >= 0) & (at < length), cycles[inside] % 1.0, np.nan)


def positions_of(spoken: Spoken) -> list[int]:
    """Find the byte of text that spells each sound; a pause has the end of the previous word."""
    found, begun, index, sounds = [], 0, 0, spoken.sounds
    while index < len(sounds):
        end, same = sounds[index].word_end, index
        while same < len(sounds) and sounds[same].word_end == end:
            same += 1
        if end:
            word = spoken.text[begun:end].lower().rstrip() or "?"
            phones = tuple(sound.phone for sound in sounds[index:same])
            found += [begun + letter for letter in letters_of(word, phones)]
            begun = end
        else:
            found += [max(0, begun - 1)] * (same - index)
        index = same
    return found


def _between(track: np.ndarray) -> np.ndarray:
    return (track[1:] + track[:-1]) / 2
