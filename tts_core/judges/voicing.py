"""Voice activity detection (Silero): the spans of speech in a recording.

Upstream: silero-vad 6.2.3 (MIT), 16 kHz. The network returns a probability for each 32 ms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tts_core.judges.onnx import session

SAMPLE_RATE = 16_000  # Hz
WINDOW, CONTEXT = 512, 64  # samples of a window, and before it
STATE = (2, 1, 128)
THRESHOLD = 0.5


class Voicing(NamedTuple):
    """Seconds of silence before and after the speech, the longest pause inside, and of speech.

    A recording without speech is silence before it.
    """

    leading: float
    trailing: float
    longest_pause: float
    speech: float


class VoiceActivity:
    """The published network. content: of its file."""

    def __init__(self, content: bytes):
        self.session: Any = session(content)

    def probabilities(self, samples: np.ndarray) -> np.ndarray:
        """Probability of speech in each window of 32 ms, the last padded with zeros. (L,) → (W,) float32."""
        padded = np.pad(samples.astype(np.float32), (CONTEXT, -len(samples) % WINDOW))
        state, rate, found = np.zeros(STATE, np.float32), np.array(SAMPLE_RATE, np.int64), []
        for start in range(0, len(padded) - CONTEXT, WINDOW):
            window = padded[None, start : start + CONTEXT + WINDOW]
            probability, state = self.session.run(None, {"input": window, "state": state, "sr": rate})
            found.append(probability[0, 0])
        return np.array(found, np.float32)

    def voicing(self, samples: np.ndarray) -> Voicing:
        """Measure silence and speech of (L,) float32 samples at 16 kHz, to 32 ms."""
        spoken = np.flatnonzero(self.probabilities(samples) > THRESHOLD)
        seconds, window = len(samples) / SAMPLE_RATE, WINDOW / SAMPLE_RATE
        if not len(spoken):
            return Voicing(seconds, 0.0, 0.0, 0.0)
        pause = int(np.diff(spoken).max(initial=1)) - 1
        trailing = max(0.0, seconds - (int(spoken[-1]) + 1) * window)
        return Voicing(int(spoken[0]) * window, trailing, pause * window, len(spoken) * window)
