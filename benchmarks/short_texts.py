"""Measure whether the embedded voice ends short texts by itself, with and without an end mark.

    python benchmarks/short_texts.py [--side torch] [--samples 2] [--few N] [--json FILE]

100 texts of one to four words (benchmarks/texts/short.txt), in both voices: with an end mark (. ! ? by turns)
and without one, to which the folder's rules add a full stop. Both of a pair have the same seed, so that a
text with a full stop and the same without a mark give the same codes. No limit but the text's own is given.
A speech recognizer (pocketsphinx) hears them.

    ended       speech that the model ended by itself (finish_reason "stop")
    WER         percent of wrong words, with its 95 % interval over texts; flite's own reading as a bound
    difference  without - with, in points, with its 95 % interval over pairs of texts (bootstrap); of all, and
                of the texts with each mark: with a full stop both halves are the same speech

Needs flite and pocketsphinx (`pip install pocketsphinx`); without them it prints so and measures nothing.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.voice_quality import machine, missing
from examples.train_voice.evaluation import Item, judge, source
from examples.train_voice.listening import TurnScore, interval, paired_difference, word_error_rate
from examples.train_voice.settings import read_settings

TEXTS = Path(__file__).parent / "texts" / "short.txt"
SIDES = {"torch": "torch_ref", "mlx": "mlx_port"}
MARKS = ".!?"
BATCH = 50  # texts at a time
SEED, STEP = 1, 1000  # of the first text in the first sample; from one sample to the next


def pairs(lines: Sequence[str]) -> tuple[list[Item], list[Item]]:
    """Every text under both tags: with a mark, and without."""
    with_mark, without = [], []
    for tag, voice in enumerate(("slt", "rms"), start=1):
        for place, words in enumerate(lines):
            with_mark.append(Item(voice, f"[S{tag}] {words}{MARKS[place % len(MARKS)]}"))
            without.append(Item(voice, f"[S{tag}] {words}"))
    return with_mark, without


def spoken(pipeline: Any, chosen: Sequence[Item], seed: int) -> list[Any]:
    """Speak texts in batches, each with its own seed and limit."""
    results = []
    for begin in range(0, len(chosen), BATCH):
        batch = chosen[begin : begin + BATCH]
        seeds = [seed + begin + place for place in range(len(batch))]
        results += pipeline.generate_batch([item.text for item in batch], seed=seeds)
    return results


def compared(
    ours: Sequence[Sequence[TurnScore]], theirs: Sequence[Sequence[TurnScore]]
) -> tuple[float, float, float]:
    """Difference of word error rates, ours - theirs, and its interval, in points."""
    low, high = paired_difference(ours, theirs)
    return word_error_rate(flat(ours)) - word_error_rate(flat(theirs)), low, high


def flat(scores: Sequence[Sequence[TurnScore]]) -> list[TurnScore]:
    """Scores of all turns."""
    return [turn for turns in scores for turn in turns]


def row(name: str, scores: Sequence[list[TurnScore]], results: Sequence[Any] = ()) -> dict[str, Any]:
    """Line of the table."""
    low, high = interval(scores)
    ended = sum(result.finish_reason == "stop" for result in results)
    return {
        "name": name,
        "ended": f"{ended} of {len(results)}" if results else "",
        "word_error_rate": word_error_rate(flat(scores)),
        "low": low,
        "high": high,
        "longest_seconds": max((result.audio_seconds for result in results), default=None),
    }


def printed(one: dict[str, Any]) -> str:
    longest = "" if one["longest_seconds"] is None else f"{one['longest_seconds']:.1f} s"
    rate = f"{one['word_error_rate']:.1f} % ({one['low']:.1f} to {one['high']:.1f})"
    return f"| {one['name']} | {one['ended']} | {longest} | {rate} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--side", choices=SIDES, default="torch")
    parser.add_argument("--samples", type=int, default=2, help="of each text, with seeds of their own")
    parser.add_argument("--few", type=int, help="first texts only")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that listen")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"short_texts: nothing measured: {lacking}")
        return
    with_mark, without = pairs(TEXTS.read_text("utf-8").split("\n")[:-1][: given.few])
    pipeline = importlib.import_module(f"{SIDES[given.side]}.api").embedded_voice()
    print(machine())
    counts = f"{len(with_mark)} texts with an end mark and {len(without)} without, {given.samples} samples"
    print(f"{counts}, {given.side}\n")
    print("| | ended by themselves | longest | words wrong (95 %) |\n|---|---|---|---|", flush=True)
    rows, heard = list[dict[str, Any]](), dict[str, list[list[TurnScore]]]()
    with get_context("spawn").Pool(given.workers) as pool:

        def scores(chosen: Sequence[Item], samples: Sequence[np.ndarray]) -> list[list[TurnScore]]:
            return pool.map(judge, list(zip(chosen, samples, strict=True)), chunksize=1)

        sources = pool.map(partial(source, synthesis=read_settings().synthesis), with_mark)
        rows.append(row("flite itself", scores(with_mark, sources)))
        print(printed(rows[-1]), flush=True)
        for name, chosen in (("with", with_mark), ("without", without)):
            results, heard[name] = [], [[] for _ in chosen]
            for sample in range(given.samples):
                said = spoken(pipeline, chosen, SEED + STEP * sample)
                for turns, more in zip(heard[name], scores(chosen, [one.audio for one in said]), strict=True):
                    turns += more
                results += said
            rows.append(row(f"{name} an end mark", heard[name], results))
            print(printed(rows[-1]), flush=True)
    differences = {}
    for marks in (MARKS, *MARKS):
        chosen = [place for place, item in enumerate(with_mark) if item.text[-1] in marks]
        differences[marks] = compared(
            [heard["without"][place] for place in chosen], [heard["with"][place] for place in chosen]
        )
        difference, low, high = differences[marks]
        print(f"difference, {' '.join(marks)}: {difference:+.1f} points ({low:+.1f} to {high:+.1f})")
    if given.json:
        facts = {"rows": rows, "differences": differences}
        given.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
