"""Texts are cut where a reader would pause, nothing is lost, and no piece is too long."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.tts_core.text.growth import LINEAR, UNITS, growth
from tts_core.errors import UsageError
from tts_core.text.sentences import CLAUSE, SENTENCE, WORD, next_word, split, stops

STORY = (
    "Dr. Smith paid 3.5 dollars to J. R. R. Tolkien. “What?” he said. She left at 5 p.m. and Mr. Brown, who "
    "was late, came. See p. 5 of No. 2... Then nothing — really nothing; it was over!"
)


def without_space(text: str) -> str:
    return re.sub(r"\s", "", text)


ANY = st.text(st.sampled_from("abcdXYZ 0123.,;:!?…—-\"'”()\n。！，") | st.characters(), max_size=300)


@given(ANY, st.integers(1, 120))
@example(STORY, 40)
@example("a" * 100, 7)
@example("a. " * 50, 4)
@example("\u2028 a\u3000b", 1)
def test_nothing_is_lost(text: str, most: int) -> None:
    pieces = split(text, most)
    assert all(0 < len(piece) <= most and piece == piece.strip() for piece in pieces)
    if pieces:
        assert without_space("".join(pieces)) == without_space(text)
    else:
        assert not re.search(r"[a-zA-Z0-9]", text)


@given(st.lists(st.sampled_from(["One two.", "Is it?", "Yes, it is!", "Mr. Fox ran 3.5 miles."]), min_size=1))
def test_sentences_are_whole(sentences: list[str]) -> None:
    """If every sentence fits, pieces are runs of whole sentences, as long as possible."""
    pieces = split(" ".join(sentences), 30)
    assert " ".join(pieces) == " ".join(sentences)
    rest = list(sentences)
    for piece in pieces:
        taken = [rest.pop(0)]
        while " ".join(taken) != piece:
            taken.append(rest.pop(0))
        assert not rest or len(" ".join([*taken, rest[0]])) > 30


SPLIT = {
    ("Mr. Fox and Mrs. Fox. Then St. John", 24): ["Mr. Fox and Mrs. Fox.", "Then St. John"],
    ("It is 3.14 or so. Not 3. 14", 20): ["It is 3.14 or so.", "Not 3. 14"],
    ("J. R. R. Tolkien wrote. We read", 25): ["J. R. R. Tolkien wrote.", "We read"],
    ("Cats, e.g. mine, sleep. Dogs", 24): ["Cats, e.g. mine, sleep.", "Dogs"],
    ("at 5 p.m. and later. Then", 20): ["at 5 p.m. and later.", "Then"],
    ("“Go!” he said. “Now.” She went", 22): ["“Go!” he said. “Now.”", "She went"],
    ("salt, oil, etc. Then stir", 18): ["salt, oil, etc.", "Then stir"],
    ("Come on Feb. 5 with Sgt. Fox or Lt. Fox", 30): ["Come on Feb. 5 with Sgt. Fox", "or Lt. Fox"],
    ("He sat. 5 cats ran in Feb. They", 28): ["He sat. 5 cats ran in Feb.", "They"],
    ("Say no. Then go to No. 5 now", 23): ["Say no.", "Then go to No. 5 now"],
    ("The U.S. Army came. So did I", 24): ["The U.S. Army came.", "So did I"],
    ("1. Beat two eggs.\n2. Fry them. Eat", 24): ["1. Beat two eggs.", "2. Fry them. Eat"],
    ("so I. Then you", 8): ["so I.", "Then you"],
    ("one two, three four five", 15): ["one two,", "three four five"],
    ("one two — three four five", 17): ["one two —", "three four five"],
    ("one two three four", 9): ["one two", "three", "four"],
    ("unsplittable", 5): ["unspl", "ittab", "le"],
    ("End here\n\nnext part of it", 20): ["End here", "next part of it"],
    ("これは文です。次の文です。", 8): ["これは文です。", "次の文です。"],
    ("「おはよう。」『元気？』と言う。", 8): ["「おはよう。」", "『元気？』", "と言う。"],
    ("他说：“走吧！”（他走了。）【完】", 8): ["他说：“走吧！”", "（他走了。）", "【完】"],
    ("《河》，「山」、『海』", 6): ["《河》，", "「山」、", "『海』"],
    ("読む（本、』とか雲）", 6): ["読む（本、』", "とか雲）"],
    ("", 5): [],
    (" \n ", 5): [],
    ("... —", 5): [],
    ("Wait... what? No!", 8): ["Wait...", "what?", "No!"],
}


@pytest.mark.parametrize(("text", "most"), SPLIT)
def test_split(text: str, most: int) -> None:
    assert split(text, most) == SPLIT[text, most]


@pytest.mark.parametrize(("opener", "closer"), ["「」", "『』", "（）", "【】", "《》", "〈〉"])
def test_no_piece_begins_with_a_closing_quote(opener: str, closer: str) -> None:
    said = f"{opener}前の文です。{closer}"
    assert split(said + "次の文です。", len(said)) == [said, "次の文です。"]
    assert next_word(f"{opener}\u3000{opener}a", 0) == 3


def test_places() -> None:
    found: dict[str, int] = {}
    for place, rank in stops(STORY):
        found.setdefault(STORY[max(0, place - 6) : place], rank)  # the better of two comes first
    assert [text for text, rank in found.items() if rank == SENTENCE] == [
        "lkien.",
        " said.",
        " came.",
        ". 2...",
    ]
    for text, rank in (("Brown,", CLAUSE), ("thing;", CLAUSE), ("hing —", CLAUSE), ("hat?”"[-6:], CLAUSE)):
        assert any(key.endswith(text) and found[key] == rank for key in found), text
    for text in ("Dr.", " R. R.", "p.m.", "Mr.", " p.", " No."):
        assert all(found[key] == WORD for key in found if key.endswith(text)), text


def test_the_end_of_the_window_is_not_the_end_of_the_text() -> None:
    """A full stop at the limit is judged by what follows beyond it."""
    assert split("They met at 5 p.m. and left soon.", 18) == ["They met at 5 p.m.", "and left soon."]
    assert split("Come now, at 5 p.m. and leave.", 19)[0] == "Come now,"


@pytest.mark.parametrize("most", [0, -3])
def test_refused(most: int) -> None:
    with pytest.raises(UsageError, match=r"^pieces: at most"):
        split("a b", most)


def test_pieces_may_be_exactly_as_long_as_they_may() -> None:
    assert split("One two. Six.", 13) == ["One two. Six."]
    assert split("One two. Six.", 12) == ["One two.", "Six."]
    assert split("One two. Six.", 8) == ["One two.", "Six."]
    assert split("a bc d", 4) == ["a bc", "d"]


def cut(text: str) -> None:
    """A text into short pieces and into one, and its places."""
    split(text, 130)
    split(text, len(text) - 1)
    stops(text)


@pytest.mark.parametrize("unit", UNITS)
def test_takes_linear_work(unit: str) -> None:
    assert growth(cut, unit) < LINEAR
