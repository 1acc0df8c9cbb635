"""Text for terminals: every character that acts on one is shown as an escape, and lines end somewhere."""

import json
import logging
import sys
from unicodedata import category

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tts_core.errors import CheckpointError, NotFoundError, ResourceError, SpeechError, explain
from tts_core.printable import LONGEST, LineFormatter, counted, json_text, lines, named, one_line

HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
NASTY = "\x1b]0;title\x07\x9b31m\u202eevil\u2028next\n\r\ttab\udcff\ud800\U000e0001"


def hidden(text: str) -> list[str]:
    return [character for character in text if category(character) in HIDDEN]


def test_every_hidden_character_of_unicode_is_shown() -> None:
    every = [chr(number) for number in range(sys.maxunicode + 1)]
    acting = [character for character in every if category(character) in HIDDEN]
    assert len(acting) > 2000
    for character in acting:
        shown = one_line(f"a{character}b")
        assert not hidden(shown)
        assert shown[0] == "a"
        assert shown[1] == "\\"
        assert shown[-1] == "b"
    kept = "".join(character for character in every[:LONGEST] if category(character) not in HIDDEN)
    assert one_line(kept) == kept


def test_escapes_say_which_character_it_was() -> None:
    assert one_line(NASTY) == (
        r"\x1b]0;title\x07\x9b31m\u202eevil\u2028next\n\r\ttab\xff\ud800\U000e0001"  # \xff: a byte of a name
    )


@given(st.text(st.characters(), max_size=3000))
@example("\x1b" * 400)
@example("a" * LONGEST + "\x1b")
@settings(max_examples=50)
def test_a_line_is_bounded_and_stays_as_it_is(text: str) -> None:
    line = one_line(text)
    assert len(line) <= LONGEST
    assert not hidden(line)
    assert one_line(line) == line
    assert not [end for end in lines(text).split("\n") if hidden(end) or len(end) > LONGEST]
    assert lines(text).count("\n") == text.count("\n")


def test_a_long_message_keeps_its_beginning_and_its_advice() -> None:
    line = one_line(f"model: {'x' * 10**6}: unknown; convert again")
    assert line.startswith("model: xxx")
    assert line.endswith("x: unknown; convert again")
    assert " ... " in line


@pytest.mark.parametrize("kind", [CheckpointError, NotFoundError, ResourceError])
def test_errors_are_one_safe_line_for_callers_too(kind: type[SpeechError]) -> None:
    error = kind(f"{NASTY}: {'y' * 5000}")
    assert str(error) == one_line(error.args[0])
    assert str(kind()) == str(kind("")) == kind.__name__  # never an empty reason
    assert explain(kind(NASTY)) == (kind.exit_code, one_line(NASTY))
    assert r"next\n\r" in str(kind(NASTY))


@pytest.mark.parametrize(
    "error",
    [RuntimeError(NASTY * 1000), FileNotFoundError(2, "gone", NASTY), OSError(NASTY), MemoryError(NASTY)],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_too(error: Exception) -> None:
    message = explain(error)[1]
    assert not hidden(message)
    assert 0 < len(message) <= LONGEST


def test_a_failing_disk_is_no_fault_of_ours() -> None:
    code, message = explain(OSError(5, "Input/output error"))
    assert (code, message) == (5, "disk: Input/output error; check the disk, or copy the files")


def test_numbers_have_their_nouns() -> None:
    assert [counted(number, "tensor") for number in (0, 1, 2)] == ["0 tensors", "1 tensor", "2 tensors"]


def test_json_is_printable_too() -> None:
    value = {NASTY: ["\x7f", 1.5]}
    assert not [character for character in hidden(json_text(value)) if character != "\n"]
    assert json.loads(json_text(value)) == value
    with pytest.raises(ValueError, match="JSON compliant"):
        json_text(float("nan"))


def test_log_records_are_one_line() -> None:
    record = logging.LogRecord("tts_core", logging.WARNING, "", 0, "name %s", (NASTY,), None)
    assert LineFormatter().format(record) == one_line(f"name {NASTY}")


def test_names_are_listed_and_odd_ones_quoted() -> None:
    assert named(["b", "a_1", "c:", "d e", 3]) == "'3', a_1, b, 'c:', 'd e'"
