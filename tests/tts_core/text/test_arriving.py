"""Text in fragments is cut as the whole text is, as early as possible, and nothing is lost."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.text.growth import LINEAR, LONG, growth
from tests.tts_core.text.test_readings import READINGS
from tts_core.text.arriving import LEAST, MOST, Cutter, Sentences, Words

STORY = (
    "[S1] Dr. Smith paid 3.5 dollars to J. R. R. Tolkien. “What?” he said. [s2] She left at 5 p.m. and Mr. "
    "Brown, who was late, came.\n\nshe saw No. 2... Then <break time='0.5 s'/> nothing — really nothing; it "
    "was over! [pause:1.5] The end of it, [laughs. loudly] and no more。次の文です。“これも” A last one"
)
SHORT_FORMS = (
    "We will all meet there on Feb. 5 with Sgt. Pepper, Lt. Smith, Col. Brown and Gen. Lee at Apt. 5, est. "
    "1999, ext. 12 on Mon. 6 May, Ph.D. in hand. The U.S. Army of J.R.R. Tolkien has some lists, too.\n1. "
    "Eggs come first of all.\n2. Ham is the next one."
)
ANY = st.text(
    st.sampled_from("abcdXYZ .!?…。，,\n\"'”“()[]<>12S") | st.characters(codec="utf-8"), max_size=400
)


def run(cutter: Cutter, fragments: list[str]) -> list[str]:
    return [*(piece for one in fragments for piece in cutter.add(one)), *cutter.end()]


def joined(text: str) -> str:
    return re.sub(r"\s", "", text)


@pytest.mark.parametrize("cutter", [Sentences, Words])
@given(text=ANY, cuts=st.lists(st.integers(0, 400)))
@example(text=STORY, cuts=list(range(400)))
@example(text=STORY * 3, cuts=[5, 90])
@example(text="Hello there, everybody.\n\n world", cuts=[23, 24, 25])
@example(text=SHORT_FORMS, cuts=list(range(400)))
@example(text="a" * 500, cuts=list(range(0, 400, 7)))
@example(text="[" * 300 + "a. B", cuts=[100])
def test_fragments_do_not_matter(cutter: type[Cutter], text: str, cuts: list[int]) -> None:
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    fragments = [text[start:stop] for start, stop in pairwise(places)]
    pieces = run(cutter(), fragments)
    assert joined("".join(pieces)) == joined(text)
    if cutter is Sentences:
        assert pieces == run(cutter(), [text])
        assert all(piece == piece.strip() and 0 < len(piece) <= MOST for piece in pieces)
    else:
        assert "".join(pieces).rstrip() == text.rstrip()


def test_sentences_are_known_with_the_next_letter() -> None:
    """Abbreviations, numbers and small letters after a mark do not end one."""
    cutter, known = Sentences(), []
    text = 'Dr. Brown paid 3.5 dollars. [S2] "Why?" he asked.\n\nNobody ever knew! [pause:1] It\'s said that'
    for place, char in enumerate(text):
        known += [(piece, text[: place + 1]) for piece in cutter.add(char)]
    assert [piece for piece, _ in known] == [
        "Dr. Brown paid 3.5 dollars.",
        '[S2] "Why?" he asked.\n\nNobody ever knew!',
    ]
    assert known[0][1].endswith("dollars. [S")
    assert cutter.end()[-1].endswith("It's said that")


@given(st.lists(st.sampled_from(sorted(READINGS)), max_size=8), st.sampled_from([" ", "\n", "\n\n"]))
def test_letters_one_by_one_do_not_matter(texts: list[str], between: str) -> None:
    text = between.join(texts)
    assert run(Sentences(), list(text)) == run(Sentences(), [text])


def test_dates_ranks_and_numbers_of_lists_are_whole() -> None:
    pieces = run(Sentences(), list(SHORT_FORMS))
    assert not [piece for piece in pieces if re.search(r"\b(?:[A-Z][a-z]{2}|Lt|est|ext|\d|[A-Z])\.$", piece)]
    assert pieces[-1].endswith("2. Ham is the next one.")


def test_short_sentences_wait_for_company() -> None:
    assert run(Sentences(), ["Yes. No. ", "It is so, she said. Oh"]) == ["Yes. No. It is so, she said.", "Oh"]
    assert run(Sentences(), ["Yes."]) == ["Yes."]
    assert len("Yes. No.") < LEAST


@pytest.mark.parametrize("length", [LEAST, MOST])
def test_a_sentence_of_the_shortest_or_longest_length_is_a_piece_at_once(length: int) -> None:
    sentence = ("so " * MOST)[: length - 2] + "o!"
    assert len(sentence) == length
    assert Sentences().add(f"{sentence} Then") == [sentence]


def test_an_empty_line_ends_a_piece_at_once() -> None:
    assert Sentences().add("A heading of some words\n\n") == ["A heading of some words"]
    assert Sentences().add("A sentence of some words.\n") == []


def test_long_sentences_are_cut_before_they_end() -> None:
    cutter = Sentences()
    pieces = cutter.add("word, another word and " * 20)
    assert pieces
    assert all(piece.endswith(",") for piece in pieces)


def test_marks_are_whole() -> None:
    text = 'Some words come first <break time="0.5 s"/> ' * 20
    assert all(piece.count("<") == piece.count(">") for piece in run(Sentences(), [text]))
    assert run(Sentences(), ["Hello there, everybody. [pause:2]"]) == ["Hello there, everybody.", "[pause:2]"]
    assert run(Sentences(), [" \n "]) == []


def test_words_keep_their_space_and_take_marks_along() -> None:
    cutter = Words()
    found = [cutter.add(one) for one in ("Hel", "lo the", "re [S2", "] ", "Hi ", "  ", "[pause: 1]")]
    assert found == [[], ["Hello "], ["there "], [], ["[S2] Hi "], [], []]
    assert cutter.end() == ["  [pause: 1]"]
    assert cutter.end() == []


@pytest.mark.parametrize("cutter", [Sentences, Words])
@pytest.mark.parametrize("unit", ["a", "a ", "A b. ", "[", "<a", "\n", ".", "[S1] "])
def test_work_is_linear(cutter: type[Cutter], unit: str) -> None:
    def whole(text: str) -> None:
        run(cutter(), [text])

    assert growth(whole, unit) < LINEAR
    whole(unit * (LONG // len(unit)))
