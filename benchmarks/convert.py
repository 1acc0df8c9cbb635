"""Measure time and peak memory of `convert-weights` on a full-size random checkpoint, and of a file copy.

    python benchmarks/convert.py [--model dia|mars5|metavoice|dia2|qwen3] [--kind safetensors|pth|pt|1b|...]
        [--folder DIR] [--include-mbd] [--convert "-q --q-bits 8"] [--rounds 1]

Writes the checkpoint (6.4, 2.4 or 5.2 GB; 9.8 with MetaVoice's diffusion; Dia2 4.7 or 8.1; Qwen3-TTS 2.5 or
4.5) to a temporary folder in DIR. In every round it copies it and converts it, in a process of its own whose
anonymous memory is polled; both times include `sync`. Prints one line per kind, with medians, and deletes
everything. DIR needs twice the checkpoint's size and 2 GB.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.lib.checkpoints import FORMS, add_diffusion, make_checkpoint
from benchmarks.lib.timing import arguments, machine

LIMIT = 1.5e9  # bytes of anonymous memory


def anonymous_bytes(pid: int) -> int:
    """Anonymous memory of a process now; 0 if /proc does not report it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


def measure(command: list[str]) -> tuple[float, int]:
    """Run a command. Returns seconds and peak anonymous bytes."""
    begin, peak = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, anonymous_bytes(process.pid))
            time.sleep(0.002)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return time.perf_counter() - begin, peak


def bench(model: str, kind: str, folder: Path, flags: list[str], rounds: int) -> dict[str, object]:
    """Write, copy, convert and delete one checkpoint. flags: for convert-weights."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="convert-bench-") as name:
        source, copy, made = (Path(name) / part for part in ("source", "copy", "made"))
        weights = make_checkpoint(source, model, kind)
        if "--include-mbd" in flags:
            add_diffusion(source)
        size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
        command = [sys.executable, "-m", "converters.cli", "--hf-path", str(source), "--mlx-path", str(made)]
        copies, conversions, peaks = [], [], []
        for _ in range(rounds):
            os.sync()
            begin = time.perf_counter()
            shutil.copytree(source, copy)
            os.sync()
            copies.append(time.perf_counter() - begin)
            shutil.rmtree(copy)
            os.sync()
            begin = time.perf_counter()
            peaks.append(measure([*command, *flags])[1])
            os.sync()
            conversions.append(time.perf_counter() - begin)
            written = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
            shutil.rmtree(made)
        seconds, copied, peak = statistics.median(conversions), statistics.median(copies), max(peaks)
        return {
            "model": model,
            "kind": kind,
            "file": weights.name,
            "read_mb": round(size / 1e6),
            "written_mb": round(written / 1e6),
            "seconds": round(seconds, 1),
            "mb_per_s": round(size / 1e6 / seconds),
            "copy_seconds": round(copied, 1),
            "times_copy": round(
                statistics.median(
                    conversion / other for conversion, other in zip(conversions, copies, strict=True)
                ),
                2,
            ),
            "peak_anonymous_mb": round(peak / 1e6) if peak else None,
            "within_limit": peak < LIMIT,
        }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", choices=list(FORMS), default="dia")
    parser.add_argument("--kind", help="default: every published kind of the model")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--include-mbd", action="store_true", help="MetaVoice: also its diffusion")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--convert", default="", help="flags for convert-weights")
    given = parser.parse_args()
    print(machine())
    kinds = FORMS[given.model]
    if given.kind is not None and given.kind not in kinds:
        parser.error(f"--kind: {given.model} is published as {', '.join(kinds)}")
    if given.include_mbd and given.model != "metavoice":
        parser.error("--include-mbd: only for MetaVoice")
    flags = [*shlex.split(given.convert), *["--include-mbd"] * given.include_mbd]
    results = [
        bench(given.model, kind, given.folder, flags, given.rounds)
        for kind in ([given.kind] if given.kind else kinds)
    ]
    for result in results:
        print(json.dumps(result))
    if not all(result["within_limit"] for result in results):
        sys.exit(f"peak anonymous memory exceeds {LIMIT / 1e9} GB")


if __name__ == "__main__":
    main()
