"""Measure how well the embedded voice speaks ordinary prose, on both sides.

    python benchmarks/prose.py [--sides torch mlx] [--few N]

40 texts (benchmarks/texts/prose.json): six each with numbers, dates, names, quotes, abbreviations and lists,
and four long scripts, which are spoken in pieces. Each has the words that a reader would say, written by
hand, which the folder's text rules must give exactly. One sample a text at the default sampling, with the
limits of the texts' own lengths; a speech recognizer (pocketsphinx) hears it turn by turn or, in a long
script, piece by piece.

    WER     percent of wrong words, with its 95 % interval over texts; flite reads the same words as a bound
    ended   texts, or pieces of long scripts, that the model ended by itself
    RTF     seconds of computing per second of speech

Needs flite and pocketsphinx (`pip install pocketsphinx`); without them it prints so and measures nothing.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lib.random_networks import PACKAGES
from benchmarks.lib.recognizer import missing
from benchmarks.lib.timing import arguments, machine
from examples.train_voice.evaluation import Item, source
from examples.train_voice.listening import TurnScore, interval, word_error_rate
from examples.train_voice.settings import read_settings
from tts_core.dia.text import rewritten
from tts_core.judges.words import hear, word_errors, words_of
from tts_core.text.rules import FILE, TextRules, read_rules
from tts_core.voice.embedded import DIA

TEXTS = Path(__file__).parent / "texts" / "prose.json"
SEED = 1
# of the rules and of the recognizer
SPELLINGS = {
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    **{"pee em": "pm", "p m": "pm", "eff bee eye": "fbi", "f b i": "fbi", "tee vee": "tv", "t v": "tv"},
}


@dataclass(frozen=True)
class Text:
    """A text as written, and the words that should be said."""

    kind: str
    written: str
    said: str


def texts(few: int | None) -> list[Text]:
    """Read the texts, or the first `few` of each kind."""
    every = [Text(**load) for load in json.loads(TEXTS.read_text("utf-8"))]
    kinds = dict.fromkeys(item.kind for item in every)
    return [own for kind in kinds for own in [own for own in every if own.kind == kind][:few]]


def rules() -> TextRules:
    """The embedded voice's."""
    return read_rules({FILE: (DIA / FILE).read_text("utf-8")})


def said_words(text: Text) -> list[str]:
    """Words of a text after the rules. Raises SystemExit if a reader would say others."""
    found = words_of(rewritten("text", text.written, rules()))
    if found != text.said.split():
        raise SystemExit(f"prose: {text.written[:40]!r} is read as {' '.join(found)!r}")
    return found


def plain(words: Sequence[str]) -> list[str]:
    """Words in one spelling, for comparison."""
    text = f" {' '.join(words).replace('-', ' ')} "
    for written, plainly in SPELLINGS.items():
        text = text.replace(f" {written} ", f" {plainly} ")
    return text.split()


def score(job: tuple[Sequence[str], Sequence[np.ndarray]]) -> TurnScore:
    """Count the errors in the words heard in the sounds of a text, one after the other."""
    words, sounds = job
    wanted, found = plain(words), plain([item.word for sound in sounds for item in hear(sound)])
    return TurnScore(len(wanted), word_errors(wanted, found), 0.0)


def tagged(index: int, text: str) -> str:
    """The text in one voice, by turns, unless it has tags."""
    return text if text.startswith("[S") else f"[S{1 + index % 2}] {text}"


def spoken(pipeline: Any, every: Sequence[Text]) -> list[Any]:
    """Speak each text by itself."""
    return [
        pipeline.generate(tagged(index, item.written), seed=SEED + index) for index, item in enumerate(every)
    ]


def sounds(result: Any) -> list[np.ndarray]:
    """Samples of the pieces of a result."""
    return [piece.audio for piece in result.pieces] or [result.audio]


def read_by_flite(job: tuple[int, Text]) -> list[np.ndarray]:
    """Let flite read the words that should be said, turn by turn."""
    index, text = job
    script = tagged(index, rewritten("text", text.written, rules()))
    turns = re.findall(r"\[S\d\][^\[]+", script)
    return [source(Item("", turn.strip()), read_settings().synthesis) for turn in turns]


def line(name: str, every: Sequence[Text], scores: Sequence[TurnScore], rest: Sequence[str]) -> str:
    """Row of the table: all, then each kind."""
    low, high = interval([[score] for score in scores])
    cells = [f"{word_error_rate(scores):.1f} % ({low:.1f} to {high:.1f})"]
    for kind in dict.fromkeys(item.kind for item in every):
        own = [score for text, score in zip(every, scores, strict=True) if text.kind == kind]
        cells.append(f"{word_error_rate(own):.1f} %")
    return "| " + " | ".join([name, *cells, *rest]) + " |"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sides", nargs="+", choices=PACKAGES, default=list(PACKAGES))
    parser.add_argument("--few", type=int, help="first texts of each kind only")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes that listen")
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"prose: nothing measured: {lacking}")
        return
    every = texts(given.few)
    words = [said_words(item) for item in every]
    kinds = list(dict.fromkeys(item.kind for item in every))
    print(machine())
    print(f"{len(every)} texts, {sum(map(len, words))} words; seeds {SEED}, {SEED + 1}, ...\n")
    print("| " + " | ".join(["", "all (95 %)", *kinds, "ended", "RTF"]) + " |")
    print("|---" * (4 + len(kinds)) + "|", flush=True)
    with get_context("spawn").Pool(given.workers) as pool:
        read = pool.map(read_by_flite, list(enumerate(every)), chunksize=1)
        scores = pool.map(score, list(zip(words, read, strict=True)), chunksize=1)
        print(line("flite itself", every, scores, ["", ""]), flush=True)
        for side in given.sides:
            pipeline = importlib.import_module(f"{PACKAGES[side]}.api").embedded_voice()
            results = spoken(pipeline, every)
            scores = pool.map(
                score, [(w, sounds(r)) for w, r in zip(words, results, strict=True)], chunksize=1
            )
            ends = [end for result in results for end in ends_of(result)]
            seconds = sum(result.audio_seconds for result in results)
            factor = sum(result.processing_time_seconds for result in results) / seconds
            ended = f"{ends.count('stop')} of {len(ends)}"
            print(line(side, every, scores, [ended, f"{factor:.2f}"]), flush=True)


def ends_of(result: Any) -> list[str]:
    """Reasons for the ends of a result's pieces."""
    return [piece.finish_reason for piece in result.pieces] or [result.finish_reason]


if __name__ == "__main__":
    main()
