"""Measure `mlx-port batch` with many short rows of the embedded voice, end to end.

    python benchmarks/bulk.py [--rows 10000] [--minutes 20] [--backend mlx|torch] [--places 8] [--alone 200]
        [--rounds 3] [--json FILE]

Rows are of one to eight common words, by both speakers. The run is stopped after --minutes if it has not
ended, as by Ctrl-C, and its figures are those of the rows that were written; the longest rows come first.

    rows a second, hours an hour, RTF     of the whole command, from its start, model loaded and files written
    memory    of all its processes, as it grows with the rows: after a tenth of them, and at most after that
    processor processor time per second of speech: of the whole command, and after it in this process, of
              --alone of the rows, --rounds times by turns, by `generate_batch`, by a running batch for
              listeners and without, and by the bulk layer, which has none, with FLAC: medians
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.bulk_run import run
from benchmarks.timing import machine
from mlx_port.commands import opening
from mlx_port.commands.loading_flags import Loading
from tts_core.bulk.asking import Work
from tts_core.bulk.rows import TextRow, read_rows
from tts_core.bulk.speaking import RowSpeaker
from tts_core.dia.options import DiaOptions
from tts_core.serving.source import ModelSource

WORDS = Path(__file__).parent / "texts" / "short.txt"


def write_rows(path: Path, count: int) -> None:
    """Write rows of one or two short texts."""
    texts, draw = WORDS.read_text().splitlines(), random.Random(0)
    with path.open("w") as file:
        for number in range(count):
            said = " ".join(f"{text}." for text in draw.sample(texts, draw.choice((1, 2))))
            file.write(json.dumps({"id": f"{number:06d}", "text": f"[S{1 + number % 2}] {said}"}) + "\n")


def batches(chosen: Sequence[TextRow], pipeline: Any, places: int) -> float:
    """Speak rows by `generate_batch`; returns seconds of speech."""
    speech = 0.0
    for start in range(0, len(chosen), places):
        batch = chosen[start : start + places]
        made = pipeline.generate_batch([row.text for row in batch], seed=[row.number for row in batch])
        speech += sum(one.audio_seconds for one in made)
    return speech


def session(chosen: Sequence[TextRow], pipeline: Any, places: int, *, streamed: bool) -> float:
    """Speak rows in a running batch."""
    running, waiting, speech = pipeline.session(places, streamed=streamed), list(chosen), 0.0
    while waiting or running.running:
        while waiting and running.running < running.places:
            row = waiting.pop(0)
            running.join(pipeline.request(row.text, DiaOptions(seed=row.number)))
        speech += sum(event.result.audio_seconds for event in running.step())
    return speech


def bulk(parts: opening.Opened, chosen: Sequence[TextRow], pipeline: Any, places: int) -> float:
    """Speak rows in a running batch by the bulk layer, to FLAC."""
    source = ModelSource("dia", parts.configs, parts.documents, lambda: pipeline)
    open_session = partial(pipeline.session, places, streamed=False)
    speaker = RowSpeaker(source, open_session, Work({}, Path("voices"), ".flac", None))
    rows = ((replace(row, seed=row.number), row.id) for row in chosen)
    return sum(outcome.fields["duration"] for outcome in speaker.speak(rows))


def alone(
    chosen: Sequence[TextRow], backend: Literal["mlx", "torch"], places: int, rounds: int
) -> dict[str, float]:
    """Seconds of processor time per second of speech of each way, by turns after a warm-up; medians."""
    parts = opening.open_model(None, Loading(backend))
    pipeline: Any = opening.load_pipeline(parts, backend)
    ways = (
        ("generate_batch", batches),
        ("session, streamed", partial(session, streamed=True)),
        ("session", partial(session, streamed=False)),
        ("bulk layer", partial(bulk, parts)),
    )
    taken: dict[str, list[float]] = {name: [] for name, _ in ways}
    for turn in range(rounds + 1):
        for name, way in ways:
            started = time.process_time()
            speech = way(chosen if turn else chosen[:places], pipeline, places)
            taken[name].append((time.process_time() - started) / speech)
    return {name: statistics.median(one[1:]) for name, one in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--backend", choices=("mlx", "torch"), default="mlx")
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--alone", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(f"{machine()}, load {psutil.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        write_rows(source, given.rows)
        flags = ["--backend", given.backend, "--places", str(given.places)]
        done = run(source, Path(folder) / "out", flags, minutes=given.minutes)
        print(f"load {psutil.getloadavg()[0]:.1f} at the end")
        rows, hours = len(done.lines), done.seconds / 3600
        tenth = next(one.memory for one in done.samples if one.rows >= rows / 10)
        most = max(one.memory for one in done.samples if one.rows >= rows / 10)
        found = {
            "backend": given.backend,
            "rows": rows,
            "of": given.rows,
            "minutes": done.seconds / 60,
            "rows a second": rows / done.seconds,
            "hours of speech": done.speech / 3600,
            "hours an hour": done.speech / 3600 / hours,
            "RTF": done.seconds / done.speech,
            "RTF, processor": done.processor / done.speech,
            "MB after a tenth": tenth / 1e6,
            "MB at most then": most / 1e6,
        }
        for name, value in found.items():
            print(f"{name:18} {value:.3f}" if isinstance(value, float) else f"{name:18} {value}", flush=True)
        spoken = {line["id"] for line in done.lines}
        chosen = [row for row in read_rows(source).rows if row.id in spoken]
        chosen = sorted(chosen, key=lambda row: -len(row.text))[:: -(-len(chosen) // given.alone)]
        for name, value in alone(chosen, given.backend, given.places, given.rounds).items():
            found[f"{name}, processor"] = value
            print(f"{name}, processor: {value:.3f}", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
