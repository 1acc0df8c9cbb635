"""Scripts are cut at changes of speaker; nothing is lost or repeated; anchors contain every voice needed."""

from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.tiny.networks import dia_config
from tests.tts_core.text.growth import LINEAR, growth
from tts_core.dia.pieces import ANCHOR, DiaPiece, Size, bare, characters, cut, read
from tts_core.dia.text import has_words, prepare, speakable, tokenize, turns
from tts_core.errors import UsageError

CONFIG = dia_config(positions=1000, text_positions=500)
RATE = (CONFIG.max_frames) / 40.0  # Hz: the window holds 40 s, a piece of "auto" 10 s or 150 characters
DIALOGUES = Path(__file__).parents[3] / "examples/train_voice/evaluation/dialogues.txt"
STORY = "[S1] It was late. The inn, which stood by the sea, was dark; nobody had come for days. " * 6

SAID = st.lists(
    st.sampled_from(
        ["One two.", "Is it?", "Yes, it is!", "Mr. Fox ran 3.5 miles", "(laughs)", "Größe 😀", "…"]
    ),
    min_size=1,
    max_size=8,
).map(" ".join)
TURN = st.tuples(st.sampled_from(["[S1]", "[S2]"]), st.sampled_from([" ", "", "\n"]), SAID).map("".join)
SCRIPTS = st.tuples(
    st.sampled_from(["", "Before that. "]),
    st.lists(TURN, min_size=1, max_size=12).map(" ".join),
    st.sampled_from(["", " [S1]", "\n[S2] "]),
).map("".join)
ANY = st.text(
    st.sampled_from("abc XY.,;!\n") | st.characters(exclude_categories=("C", "Z", "M")), max_size=300
)
SIZES = st.builds(Size, st.integers(15, 90), st.integers(20, 120))
HEARD = st.sampled_from([(), ("S1",), ("S2",), ("S1", "S2")])


def spoken(text: str) -> list[tuple[str, str]]:
    """Speaker of each visible character, in order, for any division into turns."""
    return [(str(turn.speaker), char) for turn in turns(text) for char in turn.words if not char.isspace()]


@given(SCRIPTS | ANY, SIZES, HEARD)
@example(STORY, Size(30, 40), ())
@example("[S1]" + "a" * 100 + "[S2]b", Size(15, 20), ())
@example("[S1] a [S2] " + "😀" * 30, Size(40, 20), ("S1",))
def test_nothing_is_lost_or_said_twice(text: str, most: Size, heard: tuple[str, ...]) -> None:
    try:
        script = prepare(text, None)
    except UsageError:
        assume(False)
    pieces = cut(script, most, known=heard)
    assert [one for piece in pieces for one in spoken(piece.text)] == spoken(script)
    for piece in pieces:
        assert piece.text.startswith(("[S1]", "[S2]"))
        assert piece.text == prepare(piece.text, None), "every piece can be spoken by itself"
    for piece in pieces[:-1]:
        assert all(speakable(turn.words) for turn in turns(piece.text))
        assert most.holds(piece.text)
    *_, last = turns(script)
    tail = 0 if speakable(last.words) else len(pieces[-1].text) - len(bare(pieces[-1].text))
    assert most.holds(pieces[-1].text[: len(pieces[-1].text) - tail])
    assert (tail > 0) == (not speakable(last.words)), "a lone tag at the end stays there"


@given(SCRIPTS, SIZES, HEARD)
def test_every_voice_is_heard_before_it_is_needed(text: str, most: Size, heard: tuple[str, ...]) -> None:
    """A piece's anchors come before it, contain every voice so far, and are as few as possible."""
    pieces = cut(prepare(text, None), most, known=heard)
    known, anchors = set(heard), ()
    for place, piece in enumerate(pieces):
        assert piece.anchors == anchors
        speakers = {str(turn.speaker) for turn in turns(piece.text) if speakable(turn.words)}
        if speakers - known:
            if known:  # the second anchor, or the first one with a reference
                assert most.times(ANCHOR).holds(bare(piece.text)) or place == len(pieces) - 1
            anchors = (*anchors, place)
            known |= speakers
    assert len(anchors) <= 2 - len(heard)


def test_the_first_piece_holds_both_speakers_where_it_can() -> None:
    text = DIALOGUES.read_text().replace("\n", " ")
    pieces = cut(prepare(text, None), Size(110, 200))
    assert {turn.speaker for turn in turns(pieces[0].text)} == {"S1", "S2"}
    assert {piece.anchors for piece in pieces[1:]} == {(0,)}


def test_a_speaker_who_comes_late_makes_a_second_anchor() -> None:
    pieces = cut(
        prepare(STORY + "[S2] Who told you so? I do not believe it. [S1] My aunt, who lives there.", None),
        Size(100, 200),
    )
    late = next(place for place, piece in enumerate(pieces) if "[S2]" in piece.text)
    assert late > 2
    assert pieces[late].text == "[S2] Who told you so? I do not believe it."
    assert [piece.anchors for piece in pieces] == [(), *[(0,)] * late, (0, late)]


@pytest.mark.parametrize(
    ("text", "heard", "pieces"),
    [
        (
            "[S1] One is here. Two is there. [S2] Three is nowhere. [S1] Four is late.",
            ("S1", "S2"),
            ["[S1] One is here. Two is there.", "[S2] Three is nowhere. [S1] Four is late."],
        ),
        (
            "[S1] The inn was dark, as ever. Nobody knew, or said, who might have come.",
            (),
            ["[S1] The inn was dark, as ever.", "[S1] Nobody knew, or said, who might have come."],
        ),
        (
            "[S1] The inn stood there by the sea in the rain, and in Mr. Fox's room was no light.",
            (),
            ["[S1] The inn stood there by the sea in the rain,", "[S1] and in Mr. Fox's room was no light."],
        ),
        (
            "[S1] At last, the inn stood there by the sea in the rain and had no light.",
            (),
            ["[S1] At last, the inn stood there by the", "[S1] sea in the rain and had no light."],
        ),
    ],
    ids=["turns", "sentences", "clauses", "words"],
)
def test_turns_before_sentences_before_clauses(text: str, heard: tuple[str, ...], pieces: list[str]) -> None:
    """Words before a clause that is a scrap."""
    assert [piece.text for piece in cut(text, Size(60, 90), known=heard)] == pieces


def test_pieces_are_of_about_the_same_length() -> None:
    text = prepare(DIALOGUES.read_text().replace("\n", " "), None)
    sizes = [characters(piece.text) for piece in cut(text, Size(120, 300))]
    assert max(sizes) <= 120
    assert min(sizes) >= 40
    assert 60 <= sum(sizes) / len(sizes) <= 90


def of(
    text: str, seconds: float | str | None = "auto", said: str | None = None, frames: int = 0
) -> list[DiaPiece]:
    return read(text, said, frames, CONFIG, RATE, seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("length", "seconds", "pieces"),
    [
        (200, "auto", 1),
        (201, "auto", 2),
        (100, 5, 1),
        (101, 5, 2),
        (300, 15, 1),
        (301, 15, 3),
        (450, None, 1),
    ],
)
def test_what_is_cut(length: int, seconds: float | str | None, pieces: int) -> None:
    """Texts up to 4/3 of a piece are spoken at once, longer ones in pieces that fit the window."""
    text = ("[S1] " + "Lorem ipsum. " * 40)[: length + 3 - 1] + "."
    assert characters(text) == length
    assert len(of(text, seconds)) == pieces
    if pieces == 1:
        assert of(text, seconds) == [DiaPiece(text)]


def test_sizes_hold_what_is_exactly_as_long() -> None:
    text = "[S1] ab é"  # 6 characters, the tag being one; 7 bytes, the tag being one
    assert (characters(text), len(tokenize(text))) == (6, 7)
    assert Size(6, 7).holds(text)
    assert not Size(5, 7).holds(text)
    assert not Size(6, 6).holds(text)
    assert [Size(6, 7).count(text), Size(3, 7).count(text), Size(2, 7).count(text)] == [1, 2, 3]
    assert [Size(9, 4).count(text), Size(9, 2).count(text), Size(9, 1).count(text)] == [2, 4, 7]


def test_a_text_of_exactly_the_model_s_bytes_is_spoken_at_once() -> None:
    text = "[S1] " + "é" * 150  # the least that a piece holds: the bytes decide
    for bytes_more in (0, 1):
        config = dia_config(positions=1000, text_positions=len(tokenize(text)) - bytes_more)
        pieces = read(text, None, 0, config, RATE, "auto")
        assert (pieces == [DiaPiece(text)]) == (bytes_more == 0)


@pytest.mark.parametrize(("left", "fits"), [(42, True), (41, False)])
def test_a_piece_has_four_spare_bytes(left: int, fits: bool) -> None:
    """Spaces after a reference and an anchor, and a single tag with its space.

    Pieces share the room that a reference leaves, minus 4 bytes: each takes two fifths, at least 15 bytes.
    """
    said = "[S1] " + "a" * (CONFIG.max_text_bytes - left - 2)
    assert len(tokenize(said)) == CONFIG.max_text_bytes - left
    text = "[S1] " + "b" * 300
    if fits:
        pieces = of(text, "auto", said)
        assert max(len(tokenize(piece.text)) for piece in pieces) == int((left - 4) / 2.5) == 15
    else:
        with pytest.raises(UsageError, match="leave too little room for this text"):
            of(text, "auto", said)


def test_pieces_leave_room_for_a_reference() -> None:
    """Room in text and sound for anchors, a piece at its limit, and a reference."""
    said = "[S1] " + "So I said. " * 8 + "[S2] And I."
    text = "[S1] Lorem ipsum, dolor sit amet. [S2] Consectetur. " * 20
    for frames in (0, 100, 500, 800):
        pieces = of(text, "auto", said, frames)
        room = CONFIG.max_frames - frames
        assert max(piece.seconds for piece in pieces) * RATE <= room / 4 + 1
        for piece in pieces:
            whole = " ".join([said, *(pieces[place].text for place in piece.anchors), piece.text])
            assert len(tokenize(whole)) <= CONFIG.max_text_bytes
    with pytest.raises(UsageError, match=r"^prompt: 38\.0 s and 98 bytes of text leave too little room"):
        of(text, "auto", said, round(38 * RATE))
    with pytest.raises(UsageError, match=r"^prompt: 4\.0 s and 470 bytes of text leave too little room"):
        of(text, "auto", "[S1] " + "a" * 468, round(4 * RATE))


@given(SCRIPTS, st.sampled_from([None, "[S1] I said.", "[S2] " + "Größe. " * 20]))
def test_anchors_and_a_piece_fit_the_window(text: str, said: str | None) -> None:
    assume(has_words(text))
    pieces = of(bare(text) * 3, 4, said, 50)
    for piece in pieces:
        parts = [said and bare(said), *(pieces[place].text for place in piece.anchors), piece.text]
        whole = prepare(
            piece.text, CONFIG.max_text_bytes, transcript=" ".join(filter(None, parts[:-1])) or None
        )
        assert whole.endswith(piece.text)


def test_words_without_a_tag_go_on_in_the_turn_of_the_reference() -> None:
    pieces = of("And so it went. " * 30, "auto", "[S1] I said. [S2] And I.", 100)
    assert {piece.text[:4] for piece in pieces} == {"[S2]"}
    assert {piece.anchors for piece in pieces} == {()}
    asked = of("And so it went. " * 30, "auto", "[S1] I said. [S2]", 100)
    assert {piece.text[:4] for piece in asked} == {"[S2]"}
    assert [piece.anchors for piece in asked] == [(), *[(0,)] * (len(asked) - 1)]
    assert bare("I said. [S2]") == "[S1] I said."


def test_text_that_cannot_be_spoken_is_refused_whole() -> None:
    with pytest.raises(UsageError, match="turn 31 of 32"):
        of("[S1] One two three. " * 30 + "[S2] [S1] Four.")
    with pytest.raises(UsageError, match="502 bytes, the model takes 500; split it"):
        of("[S1] " + "a" * 500, None)
    for seconds in (0, 0.5, -1, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"piece_seconds: .* is not a number >= 1"):
            of("Hello.", seconds)


SCRIPT_UNITS = ("[S1]a ", "[S1]a. ", "a. ", ".a", "a", "[S1] a b, c. [S2] d\n\n e! ")


def read_whole(script: str) -> None:
    read(script, None, 0, CONFIG, RATE, "auto")


@pytest.mark.parametrize("unit", SCRIPT_UNITS)
def test_takes_linear_work(unit: str) -> None:
    assert growth(read_whole, unit, 1000) < LINEAR
