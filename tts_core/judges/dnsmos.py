"""DNSMOS P.835: mean opinion scores, 1 to 5, of the speech, of the background and overall.

Paper: Reddy, Gopal and Cutler 2022, arXiv 2110.01763. Upstream: microsoft/DNS-Challenge by way of speechmos
0.0.1.1 (MIT). No known difference.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tts_core.judges.onnx import session

SAMPLE_RATE = 16_000  # Hz
SECONDS = 9.01  # that the network takes
SECTION = int(SECONDS * SAMPLE_RATE)  # samples
# polynomials from the network's numbers to scores, highest power first
SPEECH = (-0.08397278, 1.22083953, 0.0052439)
BACKGROUND = (-0.13166888, 1.60915514, -0.39604546)
OVERALL = (-0.06766283, 1.11546468, 0.04602535)


class Scores(NamedTuple):
    """Mean opinion scores."""

    speech: float
    background: float
    overall: float


class DnsMos:
    """The published network. content: of its file."""

    def __init__(self, content: bytes):
        self.session: Any = session(content)

    def score(self, samples: np.ndarray) -> Scores:
        """Score (L,) float32 samples at 16 kHz: the mean over sections of 9.01 s, a second apart.

        A shorter recording is repeated.
        """
        while len(samples) < SECTION:  # doubled, as upstream
            samples = np.concatenate([samples, samples])
        count = int(len(samples) // SAMPLE_RATE - SECONDS) + 1
        found = []
        for index in range(count):
            # upstream's floats round some ends down by a sample, and it skips these sections
            section = samples[index * SAMPLE_RATE : int((index + SECONDS) * SAMPLE_RATE)]
            if len(section) == SECTION:
                raw = self.session.run(None, {"input_1": section[None].astype(np.float32)})[0][0]
                found.append(
                    [np.polyval(p, x) for p, x in zip((SPEECH, BACKGROUND, OVERALL), raw, strict=True)]
                )
        return Scores(*np.mean(found, axis=0).tolist())
