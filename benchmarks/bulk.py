"""Measure `mlx-port batch` with many short rows of the embedded voice, end to end.

    python benchmarks/bulk.py [--rows 10000] [--minutes 20] [--backend mlx|torch] [--places 8] [--alone 200]
        [--json FILE]

Rows are of one to twelve common words, by both speakers. The run is stopped after --minutes if it has not
ended, as by Ctrl-C, and its figures are those of the rows that were written.

    rows a second, hours an hour, RTF     of the whole command, from its start, model loaded and files written
    memory    of all its processes, as it grows with the rows: after a tenth of them, and at most after that
    overhead  the time per second of speech beside that of `generate_batch` of the first --alone rows, in the
              same order and batches of --places, without any files; after the run, in this process
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bulk_run import run
from benchmarks.voice_quality import machine
from tts_core.bulk.rows import read_rows

WORDS = Path(__file__).parent / "texts" / "short.txt"


def write_rows(path: Path, count: int) -> None:
    """Write rows of one to three short texts."""
    texts, draw = WORDS.read_text().splitlines(), random.Random(0)
    with path.open("w") as file:
        for number in range(count):
            said = " ".join(f"{text}." for text in draw.sample(texts, draw.choice((1, 2, 3))))
            file.write(json.dumps({"id": f"{number:06d}", "text": f"[S{1 + number % 2}] {said}"}) + "\n")


def alone(source: Path, rows: int, backend: str, places: int) -> float:
    """Seconds of computing per second of speech of `generate_batch`."""
    chosen = sorted(read_rows(source)[:rows], key=lambda row: -len(row.text))
    pipeline = load(backend)
    pipeline.generate_batch([row.text for row in chosen[:places]], seed=list(range(places)))
    speech, started = 0.0, time.perf_counter()
    for start in range(0, len(chosen), places):
        batch = chosen[start : start + places]
        made = pipeline.generate_batch([row.text for row in batch], seed=[row.number for row in batch])
        speech += sum(one.audio_seconds for one in made)
    return (time.perf_counter() - started) / speech


def load(backend: str) -> Any:
    """Load the embedded voice."""
    speak = import_module("mlx_port.commands.speak")
    return speak.load_pipeline(speak.open_model(None, backend, None), backend)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--backend", choices=("mlx", "torch"), default="mlx")
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--alone", type=int, default=200)
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
            "MB after a tenth": tenth / 1e6,
            "MB at most then": most / 1e6,
        }
        for name, value in found.items():
            print(f"{name:18} {value:.3f}" if isinstance(value, float) else f"{name:18} {value}", flush=True)
        found["RTF of generate_batch"] = alone(source, given.alone, given.backend, given.places)
        found["overhead"] = found["RTF"] / found["RTF of generate_batch"] - 1
        print(
            f"generate_batch     {found['RTF of generate_batch']:.3f} RTF; overhead {found['overhead']:.1%}"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
