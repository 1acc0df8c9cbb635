"""Captions of a dialogue that is spoken in one piece: each turn has one voice, by its pitch."""

from __future__ import annotations

import numpy as np

import mlx_port
from mlx_port.stored_voice import converted_voice

TEXT = (
    "[S1] Did you see the old bridge? It is long. [S2] I did. We walked over it. [S1] Why? [S2] To get home."
)
VOICES = {"[S1]": True, "[S2]": False}  # a high one, a low one


def is_high(samples: np.ndarray, rate: int) -> np.ndarray:
    """For each voiced frame of 40 ms, whether its pitch, by autocorrelation, is above 150 Hz."""
    length, found = round(0.04 * rate), list[bool]()
    for start in range(0, len(samples) - length, rate // 100):
        frame = samples[start : start + length]
        alike = np.correlate(frame, frame, "full")[length - 1 :]
        low, high = rate // 300, rate // 70
        period = low + int(alike[low:high].argmax())
        if alike[0] > 4e-4 * length and alike[period] > 0.5 * alike[0]:
            found.append(rate / period > 150)
    return np.array(found)


def test_each_caption_has_one_voice() -> None:
    result = mlx_port.load(converted_voice()).generate(TEXT, seed=1)
    assert [cue.text[:4] for cue in result.cues] == ["[S1]", "[S2]", "[S1]", "[S2]"]
    for cue in result.cues:
        span = slice(round(cue.start * result.sample_rate), round(cue.end * result.sample_rate))
        high = is_high(result.audio[span], result.sample_rate)
        assert len(high) > 10
        assert (high == VOICES[cue.text[:4]]).mean() > 0.9, cue
