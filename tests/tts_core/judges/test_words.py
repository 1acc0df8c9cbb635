"""Alignment of words, and pocketsphinx, where it is installed."""

from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.files import read_audio
from tts_core.judges import words
from tts_core.judges.words import HeardWord, aligned, hear, word_errors, words_of

pytestmark = pytest.mark.rest

SOUNDS = Path(__file__).parents[3] / "docs" / "use"


@pytest.mark.parametrize(
    ("wanted", "heard", "errors"),
    [
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b c", "a c", 1),
        ("a c", "a b b c", 2),
        ("a b", "", 2),
        ("", "a", 1),
        ("a b c d", "b c d a", 2),
    ],
)
def test_fewest_errors(wanted: str, heard: str, errors: int) -> None:
    assert word_errors(wanted.split(), heard.split()) == errors


def test_alignment_keeps_the_order_of_both() -> None:
    pairs = aligned(["the", "cat", "sat"], ["a", "cat", "sat", "down"])
    assert [i for i, _ in pairs if i is not None] == [0, 1, 2]
    assert [j for _, j in pairs if j is not None] == [0, 1, 2, 3]
    assert (1, 1) in pairs
    assert (2, 2) in pairs


def test_words_of_a_dialogue() -> None:
    assert words_of("[S1] Don't go!  [S2] I'm here.") == ["don't", "go", "i'm", "here"]


def test_pocketsphinx_hears_each_recording_as_if_it_were_the_first() -> None:
    """Also to the score: what the decoder keeps of earlier recordings rarely changes a word of short ones."""
    pytest.importorskip("pocketsphinx", reason="pocketsphinx is not installed")
    slt, rms = (read_audio(SOUNDS / f"{name}.wav", 16000) for name in ("slt", "rms"))

    def heard(sound: np.ndarray) -> tuple[list[HeardWord], float]:
        return hear(sound), words._decoder().hyp().score

    words._decoder.cache_clear()
    first = heard(rms)
    for before in (slt, rms * np.float32(0.05)):
        heard(before)
        assert heard(rms) == first
    assert "keys" in [one.word for one in hear(slt)]
