"""Text that arrives: its pieces, and the ids of a piece, depend on the text and not on its fragments."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.golden.cases import DEFAULT
from tts_core.errors import UsageError
from tts_core.qwen3.layout import ENDS, ROLE, script
from tts_core.qwen3.live import ArrivingPiece, ArrivingText
from tts_core.qwen3.request import PieceLengths
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer

GOLDEN = DEFAULT / "qwen3" / "tokenizer"
TOKENIZER = Qwen3Tokenizer(*((GOLDEN / name).read_text("utf-8") for name in FILES))
BOUNDS = PieceLengths(20, 40)
WORDS = [
    *("An inn is", " near", ". ", "Then", " it", ' ends." ', "(so?) ", "\n\n", "  ", "...", "'s", "é"),
    *("e\u0301", "。", "まで", "3.5", "U.S. ", "[pause:0.5]", "[pause:1] ", "a < b ", '<break time="1s"/>'),
    *("!", ", and"),
]
texts = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)


def arrived(
    text: str, cuts: list[int], look: Callable[[ArrivingText], None] = lambda _: None
) -> ArrivingText:
    found = ArrivingText(BOUNDS, marks=True)
    places = sorted({0, *(cut % (len(text) + 1) for cut in cuts), len(text)})
    for start, stop in pairwise(places):
        found.feed(text[start:stop])
        look(found)
    found.feed(None)
    return found


def parts(text: str, cuts: list[int]) -> list[ArrivingPiece]:
    return arrived(text, cuts).parts


@given(texts, st.lists(st.integers(0, 500), max_size=30))
@example('It ends here today." (Or so.) Then more.', [*range(40)])
@example("An inn is near it. [pause:1]. There it is.", [*range(45)])
@example('An inn is near it there." ...[pause:0.5]', [27])
def test_pieces_do_not_depend_on_fragments(text: str, cuts: list[int]) -> None:
    whole = arrived(text, [])
    assert parts(text, cuts) == whole.parts
    assert all(part.is_whole for part in whole.parts)
    assert arrived(text, cuts).lead == whole.lead


@given(texts, st.lists(st.integers(0, 500), max_size=30))
@example("it's e\u0301 near", [2, 3, 4, 5, 6])
@example('It ends here today." (Or so.) Then more.', [*range(40)])
@example(" \n \n x", [1, 2, 3, 4])
@example("(so?) [pause:0.5]. . (so?) ", [*range(30)])
def test_ids_that_are_known_stay(text: str, cuts: list[int]) -> None:
    """At any time those of every piece are a beginning of the ones that it has in the end."""
    known = dict[int, list[int]]()

    def look(found: ArrivingText) -> None:
        for place, part in enumerate(found.parts):
            said = part.text if part.is_whole else TOKENIZER.settled(part.text[: part.settled])
            ids = TOKENIZER.encode(script(said, more=True))[ROLE:]
            before = known.get(place, [])
            if len(ids) >= len(before):
                assert ids[: len(before)] == before
                known[place] = ids

    for place, part in enumerate(arrived(text, cuts, look).parts):
        ids = TOKENIZER.encode(script(part.text))[ROLE:-ENDS]
        before = known.get(place, [])
        assert ids[: len(before)] == before


def test_a_text_is_cut_at_sentences_and_pauses() -> None:
    found = parts("One is here. Two is here, too. Three. [pause:0.5] Four is here. [pause:2]", [])
    assert [(part.text, part.silence) for part in found] == [
        ("One is here. Two is here, too.", None),
        ("Three.", 0.5),
        ("Four is here.", 2.0),
    ]


def test_a_text_without_bounds_is_cut_at_pauses_only() -> None:
    found = ArrivingText(None, marks=True)
    found.feed("One is here. " * 40 + "[pause:1] Two.")
    found.feed(None)
    assert [part.silence for part in found.parts] == [1.0, None]


def test_an_unfinished_mark_waits() -> None:
    found = ArrivingText(BOUNDS, marks=True)
    found.feed("An inn [pau")
    assert found.parts[0].text == "An inn "
    found.feed("se:0.5] is")
    assert [part.text for part in found.parts] == ["An inn", "is"]
    with pytest.raises(UsageError, match="pause"):
        found.feed(" near [pause:x] it")


def test_marks_are_text_where_they_are_not_read() -> None:
    found = ArrivingText(BOUNDS, marks=False)
    found.feed("An inn [pau")
    assert found.parts[0].text == "An inn [pau"
