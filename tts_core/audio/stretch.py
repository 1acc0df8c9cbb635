"""Change the speed of speech at the same pitch: WSOLA, overlapping segments of the waveform.

Every segment is copied from near its position in the input, from the point that best continues the segment
before it, so that the periods of a voice join in phase. The output is the same for any division into chunks.
Source: Verhelst & Roelands, "An overlap-add technique based on waveform similarity (WSOLA) for high quality
time-scale modification of speech", ICASSP 1993.
"""

from __future__ import annotations

import numpy as np

from tts_core.errors import UsageError

SLOWEST, FASTEST = 0.5, 2.0
SEGMENT = 0.03  # seconds: three periods of a low voice
SEARCH = 0.01  # seconds to either side: in all, a period of 50 Hz
NEARER = 1e-3  # similarity penalty at the end of the search, so that the middle of equal candidates wins


class Stretcher:
    """Changes the speed of a waveform given in chunks. speed: 2 is twice as fast; 1 changes no sample.

    Raises UsageError for a speed outside 0.5 .. 2.
    """

    def __init__(self, sample_rate: int, speed: float):
        if not SLOWEST <= speed <= FASTEST:
            raise UsageError(f"speed: {speed} is outside [{SLOWEST:g}, {FASTEST:g}]")
        self.speed = speed
        self.half = max(1, round(SEGMENT * sample_rate / 2))  # samples from one segment's center to the next
        self.reach = max(1, round(SEARCH * sample_rate))
        window = np.hanning(2 * self.half + 1)[:-1]  # with its copy half a window later, the sum is one
        self._rise, self._fall = window[: self.half], window[self.half :]
        lags = np.arange(-self.reach, self.reach + 1)
        self._far = NEARER * (lags / self.reach) ** 2
        self._start = -self.half - self.reach  # place in the wave of self._known[0]
        self._known = np.zeros(-self._start)  # the input as far as it is needed, after silence
        self._length = 0  # samples of the wave so far
        self._center = 0  # place in the wave of the last segment's center
        self._count = 0  # segments so far
        self._falling = np.zeros(self.half)  # second half of the last segment

    def add(self, part: np.ndarray) -> np.ndarray:
        """Add the next (L,) samples and return the (M,) float32 samples that are now final."""
        self._length += len(part)
        if self.speed == 1:
            return part.astype(np.float32)
        self._known = np.concatenate([self._known, part.astype(np.float64)])
        return self._segments()

    def finish(self) -> np.ndarray:
        """Return the rest of the waveform: round(length / speed) samples in all."""
        if self.speed == 1:
            return np.zeros(0, np.float32)
        given = max(0, self._count - 1) * self.half
        left = round(self._length / self.speed) - given
        last = self._count + -(-left // self.half)
        silence = max(0, self._needed(last) - self._start - len(self._known))
        self._known = np.concatenate([self._known, np.zeros(silence)])
        return self._segments()[:left]

    def _source_of(self, segment: int) -> int:
        """Return the center of a segment in the waveform, before the search."""
        return round(segment * self.half * self.speed)

    def _needed(self, segment: int) -> int:
        """Count the samples of the waveform that a segment depends on."""
        continued = self._source_of(max(0, segment - 1)) + self.half
        return max(self._source_of(segment), continued) + self.half + self.reach

    def _segments(self) -> np.ndarray:
        """Add the segments whose input is known, and return the samples that they complete, (M,) float32."""
        ready = [np.zeros(0)]
        while self._needed(self._count) <= self._start + len(self._known):
            if self._count:
                self._center = self._best(self._source_of(self._count))
                ready.append(self._falling + self._rise * self._wave(self._center - self.half, self.half))
            self._falling = self._fall * self._wave(self._center, self.half)
            self._count += 1
        done = min(self._center, self._source_of(self._count) - self.reach - self.half) - self._start
        self._known, self._start = self._known[done:], self._start + done
        return np.concatenate(ready).astype(np.float32)

    def _wave(self, start: int, length: int) -> np.ndarray:
        return self._known[start - self._start : start - self._start + length]

    def _best(self, center: int) -> int:
        """Find the center near `center` of the segment most similar to the input after the last one."""
        width = 2 * self.half
        wanted = self._wave(self._center, width)
        region = self._wave(center - self.half - self.reach, width + 2 * self.reach)
        size = 1 << (len(region) - 1).bit_length()
        product = np.fft.rfft(region, size) * np.fft.rfft(wanted, size).conj()
        matches = np.fft.irfft(product, size)[: len(self._far)]
        energy = np.concatenate([[0.0], np.cumsum(region * region)])
        energy = np.maximum(energy[width:] - energy[:-width], 0) * np.sum(wanted * wanted)
        with np.errstate(invalid="ignore", divide="ignore"):
            similarity = np.where(energy > 0, matches / np.sqrt(energy), 0)
        return center - self.reach + int(np.argmax(similarity - self._far))


def stretch(samples: np.ndarray, sample_rate: int, speed: float) -> np.ndarray:
    """Change the speed of (L,) samples. → (round(L / speed),) float32."""
    stretcher = Stretcher(sample_rate, speed)
    return np.concatenate([stretcher.add(samples), stretcher.finish()])
