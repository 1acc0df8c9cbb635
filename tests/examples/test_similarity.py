"""Similarity of two voices, on sounds with a known result."""

from __future__ import annotations

import numpy as np
import pytest

from examples.train_voice.prompting import compared, pairs
from examples.train_voice.settings import read_settings
from examples.train_voice.similarity import BANDS, median_pitch, similarity, voiceprint

pytestmark = pytest.mark.rest


def voice(hertz: float, slope: float, seed: int, seconds: float = 1.0) -> np.ndarray:
    """Harmonics that fall by `slope` powers of ten each, in syllables, with some noise."""
    time = np.arange(int(16000 * seconds)) / 16000
    tone = sum(10 ** (-slope * n) * np.sin(2 * np.pi * hertz * (n + 1) * time) for n in range(30))
    syllables = np.maximum(0, np.sin(2 * np.pi * 3 * time))
    rng = np.random.default_rng(seed)
    return (0.1 * tone * syllables + 1e-4 * rng.normal(size=len(time))).astype(np.float32)


def test_a_voice_is_most_like_itself() -> None:
    one, again = voiceprint(voice(120, 0.05, 1)), voiceprint(voice(124, 0.05, 2, 1.4))
    other = voiceprint(voice(210, 0.3, 3))
    assert one.spectrum.shape == (2 * BANDS,)
    assert similarity(one, one) == pytest.approx(1)
    assert similarity(one, again) > similarity(one, other) + 0.1
    assert one.pitch == pytest.approx(120, rel=0.05)
    assert other.pitch == pytest.approx(210, rel=0.05)


def test_loudness_is_no_part_of_a_voice() -> None:
    samples = voice(120, 0.05, 1)
    assert similarity(voiceprint(samples), voiceprint(samples / 4)) > 0.97


def test_silence_is_like_nothing() -> None:
    nothing = voiceprint(np.zeros(0, np.float32))
    assert similarity(nothing, voiceprint(voice(120, 0.05, 1))) == 0
    assert median_pitch([nothing]) == 0


def test_what_a_prompt_is_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sentences of the right length; the row separates the same voice's continuations from the other's."""
    settings = read_settings().synthesis

    def source(item, synthesis):
        [(speaker, words)] = item.turns
        return voice((200, 100)[speaker], (0.3, 0.05)[speaker], len(words), len(words) / 15)

    monkeypatch.setattr("examples.train_voice.prompting.source", source)
    monkeypatch.setattr("examples.train_voice.prompting.score", lambda turns, samples: [])
    chosen = pairs(0, settings, 3)
    assert len(chosen) == 3
    assert all(2.5 <= len(samples) / 16000 <= 3.5 for _, samples, _ in chosen)
    good = compared(0, 0, chosen, [voice(200, 0.3, 9)] * 3, settings)
    bad = compared(0, 1, chosen, [voice(100, 0.05, 9)] * 3, settings)
    assert (good.voice, good.tag, bad.tag) == ("slt", "[S1]", "[S2]")
    assert (good.length, bad.length, good.count) == (3, 0, 3)
    assert good.cosines[1:] == bad.cosines[1:]
    assert good.cosines[0] > 0.9 > bad.cosines[0]
    assert good.cosines[1] > good.cosines[2] + 0.1
