"""benchmarks/prose.py: texts, the words that a reader says, scores and rows; no recognizer or flite."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import prose
from examples.train_voice.listening import TurnScore
from tts_core.dia.text import rewritten
from tts_core.judges.words import HeardWord

pytestmark = pytest.mark.rest

PROSE = prose.texts(None)


def test_forty_texts_of_prose() -> None:
    assert Counter(text.kind for text in PROSE) == {
        **dict.fromkeys(("numbers", "dates", "names", "quotes", "abbreviations", "lists"), 6),
        "long scripts": 4,
    }
    assert min(len(text.written) for text in PROSE if text.kind == "long scripts") > 380
    assert [text.kind for text in prose.texts(1)] == list(dict.fromkeys(text.kind for text in PROSE))


@pytest.mark.parametrize("text", PROSE, ids=lambda text: text.written[:30])
def test_the_rules_give_the_words_that_a_reader_says(text: prose.Text) -> None:
    """Written by hand, beside the text."""
    assert prose.said_words(text) == text.said.split()


def test_the_rules_give_a_short_text_its_full_stop_and_change_nothing_else() -> None:
    lines = (prose.TEXTS.parent / "short.txt").read_text("utf-8").splitlines()
    assert len(lines) == 100
    assert [rewritten("text", f"[S2] {line}", prose.rules()) for line in lines] == [
        f"[S2] {line}." for line in lines
    ]


def test_other_words_end_the_measurement() -> None:
    with pytest.raises(SystemExit, match="prose: 'A 5' is read as 'a five'"):
        prose.said_words(prose.Text("numbers", "A 5", "a six"))


def test_one_spelling_of_words() -> None:
    assert prose.plain(["mr", "smith", "at", "five", "p", "m"]) == ["mister", "smith", "at", "five", "pm"]
    assert prose.plain(["x-ray", "pee", "em"]) == ["x", "ray", "pm"]


def test_errors_over_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "hear", lambda sound: [HeardWord(word, 0, 0) for word in sound])
    sounds: Any = [["one", "dr", "too"], ["brown"]]
    assert prose.score((["one", "doctor", "two", "brown"], sounds)) == TurnScore(4, 1, 0.0)


def test_lines_of_the_table() -> None:
    texts = [prose.Text("a", "x", "x"), prose.Text("b", "y", "y")]
    line = prose.line("torch", texts, [TurnScore(2, 1, 0.0), TurnScore(2, 0, 0.0)], ["2 of 2", "0.50"])
    assert line == "| torch | 25.0 % (0.0 to 50.0) | 50.0 % | 0.0 % | 2 of 2 | 0.50 |"


def test_every_text_is_spoken_by_itself_by_turns() -> None:
    asked: list[tuple[str, int]] = []
    pipeline = SimpleNamespace(generate=lambda text, seed: asked.append((text, seed)))
    prose.spoken(pipeline, [prose.Text("a", text, "") for text in ("x", "y", "[S1] z")])
    assert asked == [("[S1] x", 1), ("[S2] y", 2), ("[S1] z", 3)]
