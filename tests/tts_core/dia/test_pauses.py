"""Pauses in Dia's texts: where pieces end, whose voices they have, and what a batch does with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiny.networks import dac_config, dia_config
from tts_core.dia.options import DiaOptions
from tts_core.dia.pieces import DiaPiece, read
from tts_core.dia.request import DiaFacts
from tts_core.dia.text import has_words
from tts_core.errors import UsageError
from tts_core.prompt import Prompt

CONFIG = dia_config(positions=1500, text_positions=600)
RATE = 25.0  # frames a second: the window holds 60 s
CODES = np.zeros((4, 25), np.int32)
LONG = "[S1] The first of them came in from the rain at about nine, and sat down near the fire. "


def of(text: str, seconds: float | None = 15.0, said: str | None = None) -> list[DiaPiece]:
    return read(text, said, 0 if said is None else 25, CONFIG, RATE, seconds)


def test_a_piece_ends_at_every_pause() -> None:
    """A turn that goes on repeats its tag, but not in the text of a caption's neighbor."""
    pieces = of("[pause:1] [S1] One. [pause:0.5] Two. [S2] Three. <break/> [S1] Four. [pause:2]")
    assert [piece.text for piece in pieces] == ["[S1] One.", "[S1] Two. [S2] Three.", "[S1] Four."]
    assert [(piece.before, piece.after) for piece in pieces] == [(1, 0.5), (None, 0.75), (None, 2)]


def test_pauses_at_the_ends_do_not_cut() -> None:
    assert of("[pause:1] Hello. [pause:2]") == [DiaPiece("[S1] Hello.", before=1, after=2)]
    [piece] = of("Hello. [pause:2]", said="[S1] Before.")
    assert (piece.text, piece.spoken, piece.after) == ("[S1] Before. Hello.", "Hello.", 2)


def test_a_long_part_is_cut_as_usual() -> None:
    pieces = of(LONG * 4 + "[pause:1] [S1] So.")
    assert len(pieces) > 2
    assert [piece.after for piece in pieces] == [None] * (len(pieces) - 2) + [1, None]


def test_pieces_that_hold_too_little_of_a_voice_are_anchors_together() -> None:
    """Up to five seconds, 75 characters; where the first piece is long enough it is the only one."""
    parts = ["[S1] One is here now." for _ in range(8)]
    pieces = of(" [pause:1] ".join(parts))
    assert [len(piece.anchors) for piece in pieces] == [0, 1, 2, 3, 4, 4, 4, 4]
    pieces = of(f"{LONG} [pause:1] So. [pause:1] No.")
    assert [piece.anchors for piece in pieces] == [(), (0,), (0,)]
    assert {piece.anchors for piece in of("So. [pause:1] No. [pause:1] Yes.", said="[S1] Before.")} == {()}


def test_a_speaker_after_a_pause_is_an_anchor() -> None:
    pieces = of(f"{LONG} [pause:1] [S2] Who was it? [pause:1] [S1] Nobody knew. [S2] I did.")
    assert [piece.anchors for piece in pieces] == [(), (0,), (0, 1)]


@given(
    st.lists(st.sampled_from(("[S1] Hello there.", "[S2] Oh!", "one two three, four", "So.")), min_size=1),
    st.lists(st.sampled_from((0.0, 0.5, 2.0)), min_size=30, max_size=30),
)
def test_every_word_and_every_pause_is_there(said: list[str], seconds: list[float]) -> None:
    said = said[:29]
    text = "".join(f"[pause:{pause}] {part} " for part, pause in zip(said, seconds, strict=False))
    pieces = of(f"{text} [pause:{seconds[-1]}]", 5.0)
    assert sum((piece.before or 0) + (piece.after or 0) for piece in pieces) == (
        sum(seconds[: len(said)]) + seconds[-1]
    )
    words = " ".join(piece.text for piece in pieces).replace("[S1]", "").replace("[S2]", "").split()
    assert words == " ".join(said).replace("[S1]", "").replace("[S2]", "").split()
    for place, piece in enumerate(pieces):
        assert has_words(piece.text)
        assert all(anchor < place for anchor in piece.anchors)


def test_without_pieces_a_part_must_fit() -> None:
    assert len(of(f"{LONG} [pause:1] {LONG}", None)) == 2
    with pytest.raises(UsageError, match=r"^piece_seconds: .* speaks about 15\.0 s between two pauses"):
        of(f"So. [pause:1] {LONG * 5}", None)


def test_codes_without_a_transcript_take_no_pause_inside() -> None:
    def ask(text: str) -> tuple[float | None, ...]:
        return DiaFacts(CONFIG, dac_config()).request(text, DiaOptions(seed=1), CODES).pacing.silences

    assert ask("[S1] Said before. Hello. [pause:1]") == (None, 1)
    with pytest.raises(UsageError, match=r"^text: its pauses cut it into pieces, .* give Prompt\.of\(codes="):
        ask("[S1] Said before. [pause:1] Hello.")
    given = Prompt.of(codes=CODES, text="[S1] Said before.")
    asked = DiaFacts(CONFIG, dac_config()).request(
        "Hello. [pause:1] So.", DiaOptions(seed=1, speed=0.5), given
    )
    assert (asked.pacing.texts, asked.pacing.silences) == (("Hello.", "So."), (None, 1, None))
    assert asked.seconds == pytest.approx(1 + 2 * (8 + 5) / 15)  # a tag counts as one character


def test_a_text_of_a_batch_is_cut_at_its_pauses_only() -> None:
    options = DiaOptions(seed=1, speed=2.0)
    texts = ["[pause:1] a", "b [pause:2]", "c [pause:3] d"]
    first, second, third = DiaFacts(CONFIG, dac_config()).requests(texts, options, None)
    assert [one.pacing.silences for one in (first, second, third)] == [(1, 0), (0, 2), (None, 3, None)]
    read = [[bytes(piece.tokens.astype(np.uint8)) for piece in one.pieces] for one in (first, second, third)]
    assert read == [[b"\1 a"], [b"\1 b"], [b"\1 c", b"\1 d"]]
    [exact] = DiaFacts(CONFIG, dac_config()).requests(
        ["a [pause:1] b"], DiaOptions(seed=1), None, exactly=True
    )
    assert bytes(exact.pieces[0].tokens.astype(np.uint8)) == b"a [pause:1] b"
