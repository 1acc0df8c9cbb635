"""Speak hundreds of utterances in one process of each side: nothing grows, and the last equals the first.

    python benchmarks/soak.py [--sides torch mlx] [--utterances 300] [--seconds 1.5]

Short texts with the embedded voice (benchmarks/texts/short.txt), each with a seed of its own and at most
--seconds of speech, in turns by `generate`, a `stream` to its end, one of text that arrives letter by letter,
a `stream` that is closed early, a batch of two, and a generation that is cancelled after a text that is
refused. The first utterance is spoken again
at the end. After each one:

    memory       resident set of the process, MB: median over a tenth of the run
    threads      of the process
    descriptors  open files, pipes and sockets
    objects      that Python's garbage collector knows, after a collection

Flat means: from the third tenth to the last, memory grows by at most 2 %, threads and descriptors stay, and
objects grow by less than one in 20 utterances. Exits with 1 if a side is not flat, or if its last utterance
differs from its first.

On a CPU torch keeps a compiled oneDNN primitive for each shape, the latest 1,024 of them, so that memory
grows until all lengths of speech have been met (docs/measured/memory.md). Here it keeps 4, or that growth
would hide a leak; ONEDNN_PRIMITIVE_CACHE_CAPACITY sets another number.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.lib.random_networks import PACKAGES
from benchmarks.lib.timing import arguments, machine
from tts_core.errors import CancelledError, UsageError

TEXTS = Path(__file__).parent / "texts" / "short.txt"
TENTHS, SETTLED = 10, 2  # parts of the run, and the one that its end is compared with
GROWTH = 1.02


NAMES = ("memory", "threads", "descriptors", "objects")


def state(process: psutil.Process) -> tuple[int, int, int, int]:
    """Of the process, in the order of NAMES; memory in bytes."""
    gc.collect()
    memory = process.memory_info().rss
    return memory, process.num_threads(), process.num_fds(), len(gc.get_objects())


class Soak:
    """A voice that speaks in every way that an app does. seconds: of speech at most."""

    def __init__(self, side: str, seconds: float):
        self.voice = importlib.import_module(f"{PACKAGES[side]}.api").embedded_voice()
        self.seconds = seconds
        self.ways = [self.generate, self.stream, self.arriving, self.close_early, self.batch, self.cancel]

    def speak(self, index: int, text: str) -> np.ndarray:
        """Samples of an utterance, (L,); index: its number, which is its seed and chooses the way."""
        return self.ways[index % len(self.ways)](text, index)

    def generate(self, text: str, seed: int) -> np.ndarray:
        return self.voice.generate(text, seed=seed, max_seconds=self.seconds).audio

    def stream(self, text: str, seed: int) -> np.ndarray:
        parts = self.voice.stream(text, seed=seed, max_seconds=self.seconds)
        return np.concatenate([part.audio for part in parts])

    def arriving(self, text: str, seed: int) -> np.ndarray:
        parts = self.voice.stream(iter(text), seed=seed, max_seconds=self.seconds)
        return np.concatenate([part.audio for part in parts])

    def close_early(self, text: str, seed: int) -> np.ndarray:
        parts = self.voice.stream(text, seed=seed, max_seconds=self.seconds)
        first = next(parts).audio
        parts.close()
        return first

    def batch(self, text: str, seed: int) -> np.ndarray:
        both = self.voice.generate_batch([text, text], seed=seed, max_seconds=self.seconds)
        return np.concatenate([item.audio for item in both])

    def cancel(self, text: str, seed: int) -> np.ndarray:
        with suppress(UsageError):
            self.voice.generate(f"{text} \ud800", seed=seed)
        stop = threading.Event()
        with suppress(CancelledError):
            self.voice.generate(
                text, seed=seed, max_seconds=self.seconds, cancel=stop, progress=lambda _: stop.set()
            )
        return np.zeros(0, np.float32)


def soak(side: str, utterances: int, seconds: float) -> dict[str, Any]:
    """Run one side, in this process."""
    texts = [f"[S{1 + index % 2}] {line}" for index, line in enumerate(TEXTS.read_text("utf-8").splitlines())]
    started, spoken = time.perf_counter(), Soak(side, seconds)
    process, made = psutil.Process(), 0
    states = np.zeros((utterances - 1, len(NAMES)), np.int64)  # no objects of its own
    first = spoken.speak(0, texts[0])
    for index in range(utterances - 1):
        made += len(spoken.speak(index, texts[index % len(texts)]))
        states[index] = state(process)
    last = spoken.speak(0, texts[0])
    return {
        "side": side,
        "utterances": utterances,
        "seconds_taken": time.perf_counter() - started,
        "speech_seconds": made / spoken.voice.sample_rate,
        "equal": bool(len(first)) and np.array_equal(first, last),
        "tenths": [summary(part) for part in np.array_split(states, TENTHS)],
    }


def summary(part: np.ndarray) -> dict[str, float]:
    """Median memory and objects, most threads and descriptors. part: (N, 4)."""
    medians, most = np.median(part, axis=0).tolist(), part.max(axis=0).tolist()
    return {
        "memory": medians[0],
        "threads": most[1],
        "descriptors": most[2],
        "objects": medians[3],
    }


def faults(run: dict[str, Any]) -> list[str]:
    """Compare memory of the last tenth with the third, and the last utterance with the first."""
    early, late = run["tenths"][SETTLED], run["tenths"][-1]
    found = ["the last utterance differs from the first"] * (not run["equal"])
    found += ["memory grew"] * (late["memory"] > GROWTH * early["memory"])
    found += [f"{name} grew" for name in ("threads", "descriptors") if late[name] > early[name]]
    found += ["objects grew"] * (late["objects"] - early["objects"] > run["utterances"] / 20)
    return found


def printed(run: dict[str, Any]) -> str:
    """Lines of the table, one for each of some tenths."""
    lines = []
    for index in (0, SETTLED, TENTHS // 2, TENTHS - 1):
        tenth, size = run["tenths"][index], (run["utterances"] - 1) / TENTHS
        span = f"{index * size + 1:.0f} to {(index + 1) * size:.0f}"
        held = f"{tenth['memory'] / 1e6:.1f} | {tenth['threads']} | {tenth['descriptors']}"
        lines.append(f"| {run['side']} | {span} | {held} | {tenth['objects']:,.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sides", choices=PACKAGES, nargs="+", default=list(PACKAGES))
    parser.add_argument("--utterances", type=int, default=300, help="of each side, at least 20")
    parser.add_argument("--seconds", type=float, default=1.5, help="of speech at most")
    given = parser.parse_args()
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4")  # read by the processes of the sides
    print(machine())
    print(f"{given.utterances} utterances a side, each of at most {given.seconds:g} s\n")
    print(
        "| side | utterances | memory, MB | threads | descriptors | objects |\n|---|---|---|---|---|---|",
        flush=True,
    )
    runs = []
    for side in given.sides:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # an error if the process is killed
            runs.append(pool.submit(soak, side, given.utterances, given.seconds).result())
        print(printed(runs[-1]), flush=True)
    print()
    for run in runs:
        verdict = ", ".join(faults(run)) or "flat, the last utterance equals the first"
        took = f"{run['speech_seconds']:.0f} s of speech in {run['seconds_taken']:.0f} s"
        print(f"{run['side']}: {verdict}; {took}")
    sys.exit(any(map(faults, runs)))


if __name__ == "__main__":
    main()
