"""Measure whether short pieces beside a pause are as short as the same words by themselves.

    python benchmarks/short_pauses.py [--side torch] [--few N] [--shortest-anchor N] [--json FILE]

200 texts of the embedded voice, in both voices. In each, one to three words (benchmarks/texts/utterances.txt)
are before a pause, after one, or between two, beside a sentence or beside other short words. A speech
recognizer (pocketsphinx) hears the piece, and the same words spoken by themselves with the same seed.

    longer   pieces that take more than 1.2 times as long as by themselves
    cut      pieces that did not end by themselves
    WER      percent of wrong words of the pieces, and of the words by themselves, with 95 % intervals

Needs flite and pocketsphinx (`pip install pocketsphinx`); without them it prints so and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.short_texts import SIDES
from benchmarks.voice_quality import machine, missing
from examples.train_voice.evaluation import Item, judge
from examples.train_voice.listening import interval, paired_difference, word_error_rate

SENTENCES = (
    "The small river runs slowly past the old mill.",
    "We will meet our friends after the game today.",
)
FORMS = (
    "short, short",
    "short, sentence",
    "sentence, short",
    "sentence, short, sentence",
    "short, short, short",
)
UTTERANCES = Path(__file__).parent / "texts" / "utterances.txt"
TEXTS, LONGER, BATCH = 200, 1.2, 20


@dataclass(frozen=True)
class Case:
    """A text with pauses. tag: of its speaker.  place: of the short piece that is judged.  words: of it."""

    form: str
    tag: int
    pieces: tuple[str, ...]
    place: int

    @property
    def words(self) -> str:
        return self.pieces[self.place]

    @property
    def text(self) -> str:
        return f"[S{self.tag}] " + " [pause:0.5] ".join(self.pieces)


def cases(count: int) -> list[Case]:
    """Draw texts: forms, voices and places by turns."""
    lines = UTTERANCES.read_text("utf-8").splitlines()
    draw, found = random.Random(1), []
    for number in range(count):
        form = FORMS[number % len(FORMS)]
        kinds = form.split(", ")
        pieces = tuple(
            f"{draw.choice(lines)}." if kind == "short" else draw.choice(SENTENCES) for kind in kinds
        )
        short = [place for place, kind in enumerate(kinds) if kind == "short"]
        found.append(Case(form, 1 + number // len(FORMS) % 2, pieces, draw.choice(short)))
    return found


def measured(pipeline: Any, chosen: Sequence[Case]) -> list[tuple[Any, Any]]:
    """Speak texts: their judged pieces, each with the same words by themselves with that piece's seed."""
    pieces = [
        pipeline.generate(case.text, seed=seed).pieces[case.place]
        for seed, case in enumerate(chosen, start=1)
    ]
    apart = []
    for start in range(0, len(chosen), BATCH):
        texts = [f"[S{case.tag}] {case.words}" for case in chosen[start : start + BATCH]]
        seeds = [piece.seed for piece in pieces[start : start + BATCH]]
        apart += pipeline.generate_batch(texts, seed=seeds)
    return list(zip(pieces, apart, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=SIDES, default="torch")
    parser.add_argument("--few", type=int, default=TEXTS, help="first texts only")
    parser.add_argument("--shortest-anchor", type=int, help="characters, in place of the voice's own rule")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that listen")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"short_pauses: nothing measured: {lacking}")
        return
    pipeline = importlib.import_module(f"{SIDES[given.side]}.api").embedded_voice()
    if given.shortest_anchor is not None:
        pipeline.rules = replace(pipeline.rules, shortest_anchor=given.shortest_anchor)
    rule = f"anchors of {pipeline.rules.shortest_anchor} characters and more"
    print(f"{machine()}\n{given.few} texts, {given.side}, {rule}\n", flush=True)
    chosen = cases(given.few)
    pairs = measured(pipeline, chosen)
    ratio = np.array([len(piece.audio) / max(1, len(one.audio)) for piece, one in pairs])
    cut = np.array([piece.finish_reason != "stop" for piece, _ in pairs])
    print("| | texts | longer | cut | median ratio | largest |\n|---|---|---|---|---|---|")
    for form in (*FORMS, "all"):
        of = np.array([form in (case.form, "all") for case in chosen])
        if of.any():
            print(
                f"| {form} | {of.sum()} | {(ratio[of] > LONGER).sum()} | {cut[of].sum()} "
                f"| {np.median(ratio[of]):.2f} | {ratio[of].max():.2f} |"
            )
    items = [Item("short", f"[S{case.tag}] {case.words}") for case in chosen]
    with get_context("spawn").Pool(given.workers) as pool:
        heard = [
            pool.map(judge, list(zip(items, [pair[which].audio for pair in pairs], strict=True)), chunksize=1)
            for which in (0, 1)
        ]
    for name, scores in zip(("beside a pause", "by themselves"), heard, strict=True):
        low, high = interval(scores)
        rate = word_error_rate([turn for turns in scores for turn in turns])
        print(f"words wrong {name}: {rate:.1f} % ({low:.1f} to {high:.1f})")
    low, high = paired_difference(*heard)
    print(f"difference: {low:+.1f} to {high:+.1f} points")
    if given.json:
        facts = [
            {"text": case.text, "place": case.place, "ratio": float(one), "cut": bool(ends)}
            for case, one, ends in zip(chosen, ratio, cut, strict=True)
        ]
        given.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
