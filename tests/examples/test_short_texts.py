"""benchmarks/short_texts.py: texts, batches, rows and rates; without a recognizer or flite."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import short_texts
from benchmarks.prose import rules
from examples.train_voice.listening import TurnScore, paired_difference
from tts_core.dia.text import rewritten

pytestmark = pytest.mark.rest

LINES = short_texts.TEXTS.read_text("utf-8").splitlines()


def test_two_hundred_short_texts_with_and_without_a_mark() -> None:
    """One to four words, as many of each; no text twice; both voices."""
    assert Counter(len(line.split()) for line in LINES) == {1: 25, 2: 25, 3: 25, 4: 25}
    with_mark, without = short_texts.pairs(LINES)
    assert len(with_mark) == len(without) == 200
    assert len({item.text for item in without}) == 200
    assert Counter(item.text[:4] for item in without) == {"[S1]": 100, "[S2]": 100}
    assert all(
        one.text == f"{other.text}{one.text[-1]}" for one, other in zip(with_mark, without, strict=True)
    )
    assert {item.text[-1] for item in with_mark} == {*short_texts.MARKS}


@pytest.mark.parametrize("line", LINES)
def test_the_rules_give_a_short_text_its_full_stop_and_change_nothing_else(line: str) -> None:
    assert rewritten("text", f"[S2] {line}", rules()) == f"[S2] {line}."


class Pipeline:
    """Says the place of every text, in samples."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, Any]] = []

    def generate_batch(self, texts: list[str], **given: Any) -> list[Any]:
        self.calls.append((len(texts), given))
        return [SimpleNamespace(audio=np.zeros(seed), finish_reason="stop") for seed in given["seed"]]


def test_batches_have_a_seed_a_text_and_no_limit() -> None:
    pipeline, items = Pipeline(), short_texts.pairs(LINES)[0]
    results = short_texts.spoken(pipeline, items[:70], 5)
    assert [len(result.audio) for result in results] == list(range(5, 75))
    assert [(size, given.keys()) for size, given in pipeline.calls] == [(50, {"seed"}), (20, {"seed"})]


def test_a_row() -> None:
    results = [SimpleNamespace(finish_reason=end, audio_seconds=2.5) for end in ("stop", "length")]
    found = short_texts.row("with", [[TurnScore(2, 1, 0.0)], [TurnScore(2, 0, 0.0)]], results)
    assert short_texts.printed(found) == "| with | 1 of 2 | 2.5 s | 25.0 % (0.0 to 50.0) |"


def scores(errors: list[int]) -> list[list[TurnScore]]:
    return [[TurnScore(2, one, 0.0)] for one in errors]


def test_the_paired_difference_draws_both_texts_at_once() -> None:
    """Equal scores differ by nothing, however much they vary; a constant difference has no width."""
    assert paired_difference(scores([0, 2, 1, 0]), scores([0, 2, 1, 0])) == (0, 0)
    assert paired_difference(scores([1, 2, 1, 2]), scores([0, 1, 0, 1])) == (50, 50)
    low, high = paired_difference(scores([2, 0, 0, 0]), scores([0, 0, 0, 0]))
    assert 0 <= low < 25 < high
