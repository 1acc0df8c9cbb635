"""Measure what quantization costs the embedded voice, and the voice itself, by judges.

    python benchmarks/voice_judged.py [--sentences 20] [--workers 4] [--json FILE]

Sentences of 4 to 14 words that are in no training data, half of them in each voice, read by flite, which the
voice learned from, and spoken by every form of the voice with the same seeds, default settings.

    wer         wrong words, by pocketsphinx, of all words
    mos         naturalness, 1 to 5, by DistillMOS
    dnsmos      overall quality, 1 to 5, by DNSMOS P.835
    likeness    cosine with flite's reading of the same sentence, by Resemblyzer's network

The first table has means with 95 % intervals over sentences, the second the differences from MLX in float32,
with intervals over pairs. Needs flite, the extra `judge`, and `mlx-port judge --install`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from benchmarks.voice_quality import forms, machine, missing, spoken
from examples.train_voice.evaluation import Item, items, source
from examples.train_voice.settings import read_settings
from tts_core.judges.judging import judges_of
from tts_core.judges.process import JudgeProcesses, Recording
from tts_core.judges.statistics import paired_interval, ratio_interval
from tts_core.voice.embedded import CODEC, DIA

FIGURES = ("wer", "mos", "dnsmos_overall", "likeness")
RATE = 16_000  # Hz, of flite and of the voice
YARDSTICK = "mlx float32"


def chosen(count: int, voices: Any) -> list[Item]:
    """Choose sentences, other ones for each voice."""
    groups = {name: [one for one in items(voices, None) if one.group == name] for name in ("slt", "rms")}
    half = count // 2
    return groups["slt"][:half] + groups["rms"][half : 2 * half]


def heard(
    judges: JudgeProcesses,
    said: Sequence[Item],
    sounds: Sequence[np.ndarray],
    references: Sequence[Path | None],
) -> list[dict[str, float]]:
    """Judge recordings of some texts. Raises ValueError for one that cannot be judged."""
    for place, (item, sound, reference) in enumerate(zip(said, sounds, references, strict=True)):
        file = io.BytesIO()
        soundfile.write(file, sound, RATE, format="WAV", subtype="FLOAT")
        judges.begin(Recording(str(place), file.getvalue(), ".wav", item.text, reference))
    found: dict[int, dict[str, float]] = {}
    while judges.pending:
        for verdict in judges.verdicts(None):
            if verdict.figures is None:
                raise ValueError(f"text {verdict.key}: {verdict.error}")
            found[int(verdict.key)] = verdict.figures
    return [found[place] for place in range(len(said))]


def ratio(rows: Sequence[dict[str, float]], figure: str) -> tuple[list[float], list[float]]:
    """Parts and wholes of a figure: word errors of words, else a mean."""
    if figure == "wer":
        return [one["word_errors"] for one in rows], [one["words"] for one in rows]
    return [one[figure] for one in rows], [1.0] * len(rows)


def value(parts: Sequence[float], wholes: Sequence[float]) -> float:
    """The figure of all rows."""
    return sum(parts) / max(sum(wholes), 1e-12)


def cell(figure: str, mean: float, low: float, high: float, sign: str = "") -> str:
    """Format a figure with its interval."""
    if figure == "wer":
        return f"{100 * mean:{sign}.1f} % ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"
    return f"{mean:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def line(name: str, rows: Sequence[dict[str, float]]) -> str:
    """Format a row of the first table."""
    cells = []
    for figure in FIGURES:
        parts, wholes = ratio(rows, figure)
        cells.append(cell(figure, value(parts, wholes), *ratio_interval(parts, wholes)))
    return "| " + " | ".join([name, *cells]) + " |"


def difference(name: str, rows: Sequence[dict[str, float]], others: Sequence[dict[str, float]]) -> str:
    """Format a row of the second table."""
    cells = []
    for figure in FIGURES:
        ours, theirs = ratio(rows, figure), ratio(others, figure)
        cells.append(cell(figure, value(*ours) - value(*theirs), *paired_interval(ours, theirs), sign="+"))
    return "| " + " | ".join([name, *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="judging processes")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    lacking = missing()
    if lacking:
        print(f"voice_judged: nothing measured: {lacking}")
        return
    synthesis = read_settings().synthesis
    said = chosen(given.sentences, synthesis.voices)
    sources = [source(item, synthesis=synthesis) for item in said]
    found: dict[str, list[dict[str, float]]] = {}
    head = "| " + " | ".join(["", *FIGURES]) + " |\n" + "|---" * (len(FIGURES) + 1) + "|"
    judges_of(FIGURES)  # what is missing is said here
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(JudgeProcesses(partial(judges_of, FIGURES), given.workers)) as judges,
    ):
        references = [Path(folder) / f"{place}.wav" for place in range(len(said))]
        for path, sound in zip(references, sources, strict=True):
            soundfile.write(path, sound, RATE, subtype="FLOAT")
        print(f"{machine()}\n{len(said)} sentences\n\n{head}", flush=True)
        found["flite itself"] = heard(judges, said, sources, references)
        print(line("flite itself", found["flite itself"]), flush=True)
        seconds = [len(sound) / RATE for sound in sources]
        for form in forms(Path(folder), DIA, CODEC):
            name = f"{form.side} {form.name}"
            results = spoken(form.load(), said, seconds)
            found[name] = heard(judges, said, [result.audio for result in results], references)
            print(line(name, found[name]), flush=True)
    print(f"\nDifferences from {YARDSTICK}:\n\n{head}")
    for name, rows in found.items():
        if name not in (YARDSTICK, "flite itself"):
            print(difference(name, rows, found[YARDSTICK]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
