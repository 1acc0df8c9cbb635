"""Unknown characters: accents are left out, others named briefly, or skipped with a warning."""

import logging
import pickle

import pytest

from tts_core.errors import FieldError, explain
from tts_core.text.alphabet import NAMED, accent_notes, known_text, listed


def known(char: str) -> bool:
    return char.isascii()


def test_known_text_is_returned_as_it_is(caplog):
    assert known_text("text", "Plain.", known, skip=True) == "Plain."
    assert accent_notes("text", "Plain.", known) == ()
    assert not caplog.records


def test_control_characters_are_left_to_others():
    assert known_text("text", "a\0\x85\ud800", known, skip=False) == "a\0\x85\ud800"


def test_accents_are_left_out_with_one_note(caplog):
    text = "Café naïve, Größe: Œuvre, cafe\u0301"
    assert known_text("text", text, known, skip=False) == "Cafe naive, Grosse: Oeuvre, cafe"
    assert accent_notes("text 2", text, known) == (
        "text 2: read without accents: é as e, ï as i, ö as o, ß as ss, Œ as Oe",
    )
    assert not caplog.records


def test_a_note_names_at_most_eight_letters():
    [note] = accent_notes("text", "àáâãäåèéêë", known)
    assert note.endswith("é as e and 2 more")


@pytest.mark.parametrize("text", ["東京", "Привет", "Γειά", "שלום", "日", "e東"])
def test_other_alphabets_are_refused_in_few_words(text):
    with pytest.raises(FieldError) as error:
        known_text("text", text, known, skip=False)
    letters = " ".join(dict.fromkeys(char for char in text if not char.isascii()))
    assert str(error.value) == (
        f"text: the model has not learned {letters}; write them in its alphabet, or leave them out with "
        "skip_unknown=True"
    )


def test_each_door_words_the_error():
    with pytest.raises(FieldError) as caught:
        known_text("text", "東", known, skip=False)
    error = caught.value
    assert (error.field, error.option) == ("text", "skip_unknown")
    assert error.reason.startswith("the model has not learned 東; ")
    assert error.worded(str, "input").startswith("input: the model has not learned 東")
    assert error.worded(str, "input").endswith("or leave them out with skip_unknown")
    assert explain(error)[1].endswith("with skip_unknown=True")
    assert explain(error, lambda name: f"<{name}>") == (
        2,
        str(error).replace("skip_unknown=True", "<skip_unknown>"),
    )
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.option) == (FieldError, str(error), "skip_unknown")


def test_long_lists_are_cut():
    letters = [chr(0x4E00 + place) for place in range(NAMED + 3)]
    assert listed(letters[:NAMED]) == " ".join(letters[:NAMED])
    assert listed(letters) == " ".join(letters[:NAMED]) + " and 3 more"
    assert listed(["東", "\u202e", "\u0e31"]) == "東 (U+202E) \u0e31"
    assert listed(["\u05b0"]) == "(U+05B0)"


def test_skipped_with_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "tts_core"):
        assert known_text("text", "a東bé", known, skip=True) == "a be"
    assert caplog.messages == ["text: left out 東: the model has not learned them"]
    assert known_text("text", "a東b東 東c", known, skip=True) == "a b c"


def test_invisible_marks_are_dropped(caplog):
    with caplog.at_level(logging.WARNING, "tts_core"):
        assert known_text("text", "a\u200eb \u2068c\u2069d\ufe0f 1\u200b2", known, skip=False) == "ab cd 12"
    assert not caplog.messages
