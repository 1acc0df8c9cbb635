"""Pieces of a dialogue follow the first ones, and keep their speakers."""

import numpy as np
import pytest

from tts_core.codecs.dac import DAC_44KHZ
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig
from tts_core.dia.dialogue import Dialogue
from tts_core.dia.model import MODEL
from tts_core.dia.voice import read_voice
from tts_core.errors import UsageError
from tts_core.prompt import Prompt, Reference

CONFIG = config_of(MODEL.sizes["nari-labs/Dia-1.6B-0626"], "dia", DiaConfig)
LONG = "A sentence of about five seconds, which is enough to know a voice by, is said here."


def codes(frames: int, value: int = 0) -> np.ndarray:
    return np.full((9, frames), value, np.int32)


def pieces(prompt: Prompt | None, *texts: str, shortest: int = 0) -> list[tuple[str, str | None]]:
    """What is read, and the transcripts before it."""
    voices, found = Dialogue(prompt, shortest), []
    for text in texts:
        said, given = voices.next(text)
        assert given is None or isinstance(given, Prompt)
        heard = None if given is None else " | ".join(str(one.text) for one in given.references)
        found.append((said, heard))
        voices.spoken(codes(9))
    return found


def test_a_piece_that_is_too_short_is_not_continued() -> None:
    assert pieces(None, "Hi.", "There.", LONG, "More.", shortest=30) == [
        ("Hi.", None),
        ("[S1] There.", None),
        (f"[S1] {LONG}", None),
        ("More.", f"[S1] {LONG}"),
    ]


def test_a_short_first_piece_is_not_enough_of_a_voice() -> None:
    assert (
        pieces(None, "Hello there, you.", "More of it.", LONG)[2][1]
        == "[S1] Hello there, you. [S1] More of it."
    )


def test_speakers_are_kept_and_each_is_continued() -> None:
    """A piece without a tag belongs to the one who spoke last in the text, not in the prompt."""
    found = pieces(None, f"[S1] {LONG}", "[s2] Oh. [S1] Yes.", "Go on.", "[S2] I do.", "I do, I say.")
    first, both = f"[S1] {LONG}", f"[S1] {LONG} [S2] Oh. [S1] Yes."
    assert found == [
        (first, None),
        ("[S2] Oh. [S1] Yes.", first),
        ("Go on.", both),
        ("[S2] I do.", both),
        ("[S2] I do, I say.", both),
    ]


def test_the_prompts_last_speaker_goes_on_without_a_tag() -> None:
    found = pieces(None, f"[S1] {LONG} [S2] {LONG}", "[S2] And more.", "[pause:1] [S1] So.", "It is.")
    assert [text for text, _ in found][1:] == ["And more.", "[S1] [pause:1] So.", "[S1] It is."]


def test_a_recording_comes_first_and_a_second_speaker_is_added() -> None:
    recording = Prompt.of(np.ones(99, np.float32), "[S1] The voice of one speaker.")
    found = pieces(recording, "Hello there.", f"[S2] {LONG}", "[S1] On.")
    assert [heard for _, heard in found] == [
        "[S1] The voice of one speaker.",
        "[S1] The voice of one speaker.",
        f"[S1] The voice of one speaker. | [S2] {LONG}",
    ]
    assert found[2][0] == "[S1] On."


def test_what_is_continued_is_bounded() -> None:
    found = pieces(None, f"[S1] {LONG} {LONG}", f"[S2] {LONG} {LONG}", "[S1] On.")
    assert found[2][1] == f"[S1] {LONG} {LONG}"


def test_codes_without_words_are_refused() -> None:
    with pytest.raises(UsageError, match="codes without a transcript continue one text"):
        Dialogue(codes(9))


def test_codes_follow_the_samples_of_a_recording() -> None:
    """In that order, with both transcripts; two recordings are refused as ever."""
    samples = np.random.default_rng(0).normal(0, 0.1, 3 * DAC_44KHZ.sample_rate).astype(np.float32)
    first = Reference(samples, "[S1] The voice of one speaker.")
    then = Reference(codes=codes(9, 5), text="[S2] The other one.")
    voice = read_voice(CONFIG, DAC_44KHZ, Prompt((first, then)))
    assert voice is not None
    heard = -(-len(samples) // DAC_44KHZ.hop_length)
    assert voice.frames == heard + 9
    assert voice.transcript == "[S1] The voice of one speaker. [S2] The other one."
    encoded = voice.encoded(lambda given: codes(heard, 1)).codes
    np.testing.assert_array_equal(encoded, np.concatenate([codes(heard, 1), codes(9, 5)], axis=1))
    both = read_voice(CONFIG, DAC_44KHZ, Prompt((Reference(codes=codes(7), text="[S1] A."), then)))
    assert both is not None
    assert (both.frames, both.samples) == (16, None)
    with pytest.raises(UsageError, match="2 references; this model takes one"):
        read_voice(CONFIG, DAC_44KHZ, Prompt((first, first)))
