"""A short piece beside a pause is as short as the same words by themselves."""

from __future__ import annotations

import pytest

import torch_ref.api
from tts_core.results import GenerationResult

pytestmark = pytest.mark.rest


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_word_after_a_pause_ends(seed: int) -> None:
    """Spoken after the other word, "There." took 3 s, and did not end in two of these."""
    voice = torch_ref.api.embedded_voice()
    for piece in voice.generate("Hi. [pause:0.5] There.", seed=seed).pieces:
        apart: GenerationResult = voice.generate(piece.text, seed=piece.seed)
        assert piece.finish_reason == "stop"
        assert len(piece.audio) <= 1.2 * apart.samples
