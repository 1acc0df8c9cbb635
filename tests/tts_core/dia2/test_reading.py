"""The house's rules before Dia2's own reading, text that comes in pieces, and cuts of long scripts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.dia2 import tokenizer
from tests.tiny.networks import dia2_config
from tts_core.dia2.machine import StateMachine, longest_steps
from tts_core.dia2.pieces import cut, room, tag_of
from tts_core.dia2.script import Entry, Feed, Reader, read, read_exactly
from tts_core.errors import UsageError

READER = Reader.of(tokenizer(), 2, 12.5)
S1, S2 = READER.speakers


def words(entries: list[Entry]) -> list[str]:
    return [entry.text for entry in entries if entry.tokens]


@pytest.mark.parametrize(
    ("given_text", "as_if"),
    [
        ("[s1] Hello there.", "[S1] Hello there."),
        ("[S1]Hello there.[ s2 ]Hi.", "[S1] Hello there. [S2] Hi."),
        ("  Hello\nthere.  ", "Hello there."),
        ("Hello [pause:0.8] there.", 'Hello <break time="0.8s"/> there.'),
        ('[S1] One. <break time="400ms"/> [S2] Two.', '[S1] One. <break time="0.4s"/> [S2] Two.'),
        ("It\u2019s ten: now.", "It's ten now."),
    ],
)
def test_the_house_writes_what_the_original_reads(given_text, as_if):
    assert read(READER, given_text) == READER.entries(as_if)


def test_a_first_second_speaker_is_alone():
    """The original puts both tags before the first word; as_written keeps that."""
    [own, *_], [theirs, *_] = read(READER, "[S2] Hello there."), read_exactly(READER, "[S2] Hello there.")
    assert own.tokens[0] == S2
    assert theirs.tokens[:2] == (S1, S2)
    assert own.tokens[1:] == theirs.tokens[2:]
    assert own.padding == len(own.tokens)


def test_a_pause_at_the_start_comes_before_the_first_word():
    first, second, *_ = read(READER, "[pause:1] [S1] Hello.")
    assert (first, second.tokens[0]) == (Entry((), "", 12), S1)


@pytest.mark.parametrize(
    ("text", "named"), [("[S1] ... [S2]", "no words"), ("[S1] Hi\x00.", "control character")]
)
def test_text_that_cannot_be_read_is_refused(text, named):
    with pytest.raises(UsageError, match=named):
        read(READER, text)


@pytest.mark.parametrize("text", ['a <break time="1,5s"/> b', 'a <break time="1x5s"/> b'])
def test_the_originals_breaks_without_a_number_are_refused(text):
    with pytest.raises(UsageError, match="has no length in seconds"):
        read_exactly(READER, text)


TEXT = '[S1] Hello there, friend. [pause:0.5] It\'s [S2] Oh! <break time="1s"/> (laughs) [S1]Yes. '


@settings(max_examples=80)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=12).map(sorted))
def test_text_in_pieces_is_the_whole_text(cuts):
    """Cut anywhere: within words, tags and breaks."""
    pieces = [TEXT[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    feed = Feed(READER)
    entries = [entry for piece in pieces for entry in feed.add(piece)] + feed.end()
    assert entries == read(READER, TEXT)


def test_words_come_as_soon_as_they_are_whole():
    feed = Feed(READER)
    assert words(feed.add("[S1] One two")) == ["One"]
    assert words(feed.add(" three [S")) == ["two", "three"]
    assert words(feed.add("2] four")) == []
    last = feed.end()
    assert (words(last), last[0].tokens[0]) == (["four"], S2)


def test_a_piece_that_is_no_text_is_refused():
    with pytest.raises(UsageError, match="a piece is 3, not text"):
        Feed(READER).add(3)  # pyright: ignore[reportArgumentType]


SCRIPT = " ".join(
    f"[S{1 + n % 2}] Turn {n} begins here, my friend. And it goes on, with words." for n in range(9)
)


@pytest.mark.parametrize("most", [40, 90, 200, 5000])
def test_pieces_fit_and_lose_nothing(most):
    entries = read(READER, SCRIPT)
    pieces = cut(READER, entries, most)
    assert [entry.text for piece in pieces for entry in piece.entries] == [entry.text for entry in entries]
    for piece in pieces:
        assert sum(map(longest_steps, piece.entries)) <= most
        assert tag_of(READER, piece.entries[0])
        assert piece.text.startswith(("[S1] ", "[S2] "))
    assert (len(pieces) == 1) == (most == 5000)


@settings(max_examples=40)
@given(data=st.data())
def test_a_piece_ends_within_the_context_whatever_the_actions(data):
    """longest_steps bounds the machine for any action at every step."""
    config = dia2_config()
    lengths = st.lists(st.integers(0, 12), min_size=1, max_size=8)
    entries = [
        Entry(tuple(range(10, 10 + length)), "w" if length else "", length or 5)
        for length in data.draw(lengths)
    ]
    padding = data.draw(st.integers(0, 4))
    machine = StateMachine.of(config, entries, padding)
    most = sum(map(longest_steps, entries)) + padding + 1
    for step in range(most):
        machine.step(step, data.draw(st.integers(0, 1)))
    assert machine.end is not None
    assert room(config, padding) < config.max_context_steps
