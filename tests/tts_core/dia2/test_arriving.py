"""A text that is spoken while it comes: its pieces, without any network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiny.dia2 import tokenizer
from tests.tiny.networks import dia2_config
from tts_core.dia2.config import Dia2Config
from tts_core.dia2.pieces import room, tag_of
from tts_core.dia2.recordings import Prefix
from tts_core.dia2.run import SENTENCE, TURN, ArrivingEntries, Dia2Run
from tts_core.dia2.script import Entry, Reader, read
from tts_core.errors import UsageError

READER = Reader.of(tokenizer(), 2, 12.5)
CONFIG = replace(dia2_config(), second_stream_ahead=2, max_context_steps=150)
PADDING = 2
MOST = room(CONFIG, PADDING)
VOICE = Prefix(
    np.zeros((CONFIG.n_streams, 20), np.int32),
    tuple(Entry((20 + n, 30 + n), f"v{n}", 2) for n in range(3)),
    frozenset({3, 8, 15}),
)
TURNS = " ".join(
    f"[S{1 + n % 2}] Turn {n} begins here. [pause:0.3] And it goes on, my friend." for n in range(9)
)


def speak(
    pieces: Iterable[str], *, seed: int = 0, prefix: Prefix | None = None, config: Dia2Config = CONFIG
) -> Iterator[Dia2Run]:
    """Speak a text with actions by chance, run by run: a step reads a piece only if it must wait for it."""
    arriving, coming, count = ArrivingEntries(READER, room(config, PADDING)), iter(pieces), 0
    while not count or arriving.has_entries:
        run = Dia2Run(config, (), prefix=prefix, initial_padding=PADDING, is_open=True)
        random = np.random.default_rng([seed, count])
        while run.has_step:
            arriving.supply(run)
            while run.waits:
                arriving.feed(next(coming, None))
                arriving.supply(run)
            if not run.has_begun:
                run.warm_up()
                continue
            run.act(int(random.random() < 0.4))
            run.accept(np.zeros(config.n_streams, np.int32))
        count += 1
        yield run


def spoken(pieces: Iterable[str], **how: Any) -> list[Dia2Run]:
    """Speak a text; all of its runs."""
    return [*speak(pieces, **how)]


def said(runs: Sequence[Dia2Run]) -> list[tuple[str, int]]:
    """Words and breaks; a tag that is put before a word is no word."""
    return [(entry.text, 0 if entry.tokens else entry.padding) for run in runs for entry in run.own]


def parted(text: str, places: Iterable[int]) -> list[str]:
    cuts = sorted(places)
    return [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@settings(max_examples=40)
@given(
    cuts=st.lists(st.integers(0, len(TURNS)), max_size=40),
    seed=st.integers(0, 99),
    prefix=st.sampled_from([None, VOICE]),
    ahead=st.integers(0, 2),
)
def test_pieces_do_not_depend_on_the_way_a_text_comes(cuts, seed, prefix, ahead):
    """Whole, or cut anywhere: the same ids in every step of every run, also in the prefix's."""
    how = {"seed": seed, "prefix": prefix, "config": replace(CONFIG, second_stream_ahead=ahead)}
    runs = [spoken(each, **how) for each in ([TURNS], parted(TURNS, cuts), TURNS)]
    for other in runs[1:]:
        assert [run.texts for run in other] == [run.texts for run in runs[0]]
    assert len(runs[0]) > 2


@settings(max_examples=60)
@given(
    words=st.lists(
        st.sampled_from(
            ["Yes.", "no", "(laughs)", "[S1] Hello", "[S2] Then,", "[pause:1]", "[pause:4] well", "a" * 40]
        ),
        min_size=1,
        max_size=120,
    ),
    seed=st.integers(0, 99),
)
def test_nothing_is_lost_or_said_twice(words, seed):
    """Every run ends by itself, within the context, whatever the actions."""
    text = " ".join(["Well", *words])
    runs = spoken([text], seed=seed)
    assert said(runs) == [(e.text, 0 if e.tokens else e.padding) for e in read(READER, text)]
    assert [run.finish_reason for run in runs] == ["stop"] * len(runs)


@settings(max_examples=40)
@given(count=st.integers(1, 4), seed=st.integers(0, 99), prefix=st.sampled_from([None, VOICE]))
def test_a_short_text_is_spoken_as_if_it_were_known(count, seed, prefix):
    """Breaks and recordings, too: the words that are looked ahead to are there in every step."""
    text = " ".join(TURNS.split()[: 5 * count])
    [run] = spoken(text, seed=seed, prefix=prefix)
    known = Dia2Run(CONFIG, read(READER, text), prefix=prefix, initial_padding=PADDING)
    known.warm_up()
    random = np.random.default_rng([seed, 0])
    while known.has_step:
        known.act(int(random.random() < 0.4))
    assert known.texts == run.texts


def test_the_end_of_a_piece_needs_no_further_text():
    """It follows from the first entry that is left out; the text may pause for ever then."""
    come = list[str]()

    def words() -> Iterator[str]:
        for word in TURNS.split():
            come.append(word)
            yield f"{word} "

    first, known = next(speak(words())), spoken([TURNS])[0]
    assert first.texts == known.texts
    left = read(READER, " ".join(come))[len(first.own) :]
    assert 1 <= len(left) <= 2, "a break comes with the word after it"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("[S1] " + "one two three. " * 7 + "[S2] " + "four five six. " * 20, "turn"),
        ("[S1] " + "one two three. " * 30, "sentence"),
        ("[S1] " + "one two three " * 30, "word"),
        ("[S1] " + "a [S2] b " * 60, "turn"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_where_a_piece_ends(text, ends, seed):
    """After a turn, a sentence, or where no more fits; and not before the context is that full."""
    first, second = spoken([text], seed=seed)[:2]
    following = read(READER, text)[len(first.own)]
    is_turn, is_sentence = tag_of(READER, following) != "", first.own[-1].text.endswith(".")
    assert ends == ("turn" if is_turn else "sentence" if is_sentence else "word")
    assert tag_of(READER, second.own[0]) != ""
    least = {"turn": 1 - TURN, "sentence": 1 - SENTENCE, "word": 1}[ends]
    waiting = 3 * 8  # steps of the words that were given before, at their longest
    assert first.machine.end is not None
    assert first.machine.end > least * MOST - waiting


def test_a_piece_goes_on_with_its_speaker():
    """A word that goes on inside a turn gets the turn's tag, as in the pieces of a known text."""
    runs = spoken(["[S2] " + "one two three " * 30])
    assert len(runs) > 1
    for run in runs:
        assert run.own[0].tokens[0] == READER.speakers[1]
        assert all(not tag_of(READER, entry) for entry in run.own[1:])


@pytest.mark.parametrize("text", ["Well, [pause:30] then. ", "a" * 2000 + " "])
def test_what_fits_no_piece_is_refused_as_it_comes(text):
    arriving = ArrivingEntries(READER, MOST)
    with pytest.raises(UsageError, match="a break or a word is longer"):
        arriving.feed(text)


def test_a_text_without_words_is_refused_at_its_end():
    arriving = ArrivingEntries(READER, MOST)
    arriving.feed(" ... ")
    with pytest.raises(UsageError, match="no words"):
        arriving.feed(None)


def test_nothing_is_read_after_the_end():
    arriving = ArrivingEntries(READER, MOST)
    arriving.feed("Yes.")
    for late in (None, "[S3] No. ", None):
        arriving.feed(late)
    run = Dia2Run(CONFIG, (), is_open=True)
    arriving.supply(run)
    assert ([entry.text for entry in run.own], run.is_open) == (["Yes."], False)
