"""Recordings that Dia2 continues: their words and times, codes, and refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tiny.networks import dia2_config
from tests.tts_core.dia2.test_request import ask
from tts_core.dia2.recordings import longest_prefix, spread
from tts_core.errors import UsageError
from tts_core.prompt import Prompt, Reference, Word

SOUND = np.random.default_rng(0).normal(0, 0.1, 24000 * 2).astype(np.float32)
WORDS = (Word("Hello", 0.1, 0.4), Word("there.", 0.5))


def prompt(*references: Reference) -> Prompt:
    return Prompt(references)


def heard(words: tuple[Word, ...] = WORDS, text: str | None = None, **given: Any) -> Reference:
    audio: Any = given.pop("audio", SOUND)
    return Reference(audio, text, words=words, **given)


def test_the_last_word_ends_with_the_recording_by_default():
    [recording] = ask(prompt=prompt(heard())).recordings
    assert recording.words == (WORDS[0], Word("there.", 0.5, 2.0))
    assert recording.frames == 25
    [own] = ask(prompt=prompt(heard((Word("Hi.", 0.1, 0.7),)))).recordings
    assert own.words[-1].end == 0.7
    [short] = ask(prompt=prompt(heard((Word("Hi.", 0.5, 0.5),)))).recordings
    assert short.words[-1].end == 0.5


def test_words_without_times_are_spread_and_the_caller_is_told():
    asked = ask(prompt=prompt(heard((), "[S1] Hello there, my friend.")))
    [recording] = asked.recordings
    assert [word.text for word in recording.words] == ["Hello", "there,", "my", "friend."]
    assert recording.words == spread(["Hello", "there,", "my", "friend."], 2.0)
    assert recording.words[0].start == 0
    assert recording.words[-1].end == pytest.approx(2.0)
    lengths = [word.end - word.start for word in recording.words if word.end is not None]
    assert lengths == pytest.approx([2 * part / 24 for part in (6, 7, 3, 8)])
    assert asked.notes == (
        "prompt: its words have no times; they are spread over the recording by their lengths, so the speech "
        "may follow it less closely",
    )
    assert ask(prompt=prompt(heard())).notes == ()


def test_a_transcript_may_begin_with_a_small_tag():
    [recording] = ask(prompt=prompt(heard((), "[s1] Hello there."))).recordings
    assert [word.text for word in recording.words] == ["Hello", "there."]


def test_recordings_may_take_half_of_the_context():
    """To the frame."""
    most = longest_prefix(dia2_config())
    for frames, fits in ((most, True), (most + 1, False)):
        codes = np.zeros((6, frames), np.int64)
        given = prompt(heard(audio=None, codes=codes, words=(Word("Hi.", 0.0),)))
        if fits:
            assert ask(prompt=given).recordings[0].frames == frames
        else:
            with pytest.raises(UsageError, match="of recordings; the model takes"):
                ask(prompt=given)


def test_codes_are_recordings_too():
    codes = np.zeros((6, 9), np.int64)
    [recording] = ask(prompt=prompt(heard(audio=None, codes=codes, words=(Word("Hi.", 0.0),)))).recordings
    assert (recording.frames, recording.words[0].end) == (9, 9 / 12.5)
    assert recording.encoded(lambda _: pytest.fail("encoded")).dtype == np.int32


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: prompt(heard(), heard(), heard()), "3 references; this model takes one for each speaker"),
        (lambda: np.zeros((6, 4), np.int32), "give a Prompt of one recording for each speaker"),
        (lambda: prompt(heard(())), "its words are missing; give its transcript"),
        (lambda: prompt(heard((), "Hello there, [S2] friend.")), r"\[S2\] in its transcript"),
        (lambda: prompt(heard((Word("a", 0.5), Word("b", 0.2)))), "word 2 begins at 0.2 s; times must rise"),
        (lambda: prompt(heard((Word("a", 2.5),))), "word 1 begins at 2.5 s"),
        (lambda: prompt(heard((Word("a", 0.5, 0.1),))), "the last word ends at 0.1 s, before it begins"),
        (lambda: prompt(heard((Word("two words", 0.5),))), "word 1 is not one word"),
        (lambda: prompt(heard(audio=SOUND * 0)), "the reference is silent"),
        (lambda: prompt(heard(audio=np.tile(SOUND, 2))), "4.0 s of recordings; the model takes 2 s"),
        (lambda: prompt(heard(audio=None, codes=np.full((6, 4), 33))), "codes outside 0 .. 32"),
        (lambda: prompt(heard(), heard((Word("a", 9.0),))), "prompt 2: word 1 begins at 9 s"),
    ],
)
def test_recordings_that_cannot_be_used_are_refused(make: Callable[[], Any], named: str):
    with pytest.raises(UsageError, match=named):
        ask(prompt=make())
