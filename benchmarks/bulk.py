"""Measure `mlx-port batch` with many short rows of the embedded voice, end to end.

    python benchmarks/bulk.py [--rows 10000] [--minutes 20] [--backend mlx|torch] [--places 8]

Rows are of one to eight common words, by both speakers. The run is stopped after --minutes if it has not
ended, as by Ctrl-C, and its figures are those of the rows that were written; the longest rows come first.

    rows a second, hours an hour, RTF     of the whole command, from its start, model loaded and files written
    memory    of all its processes, as it grows with the rows: after a tenth of them, and at most after that
    processor processor time per second of speech, of the whole command
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import psutil

from benchmarks.lib.bulk_run import run
from benchmarks.lib.timing import arguments, machine

WORDS = Path(__file__).parent / "texts" / "short.txt"


def write_rows(path: Path, count: int) -> None:
    """Write rows of one or two short texts."""
    texts, draw = WORDS.read_text().splitlines(), random.Random(0)
    with path.open("w") as file:
        for number in range(count):
            said = " ".join(f"{text}." for text in draw.sample(texts, draw.choice((1, 2))))
            file.write(json.dumps({"id": f"{number:06d}", "text": f"[S{1 + number % 2}] {said}"}) + "\n")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--backend", choices=("mlx", "torch"), default="mlx")
    parser.add_argument("--places", type=int, default=8)
    given = parser.parse_args()
    print(f"{machine()}, load {psutil.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        write_rows(source, given.rows)
        flags = ["--backend", given.backend, "--places", str(given.places)]
        done = run(source, Path(folder) / "out", flags, minutes=given.minutes)
        print(f"load {psutil.getloadavg()[0]:.1f} at the end")
        rows, hours = len(done.lines), done.seconds / 3600
        tenth = next(wave.memory for wave in done.samples if wave.rows >= rows / 10)
        most = max(wave.memory for wave in done.samples if wave.rows >= rows / 10)
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


if __name__ == "__main__":
    main()
