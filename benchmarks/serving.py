"""Measure continuous batching of Dia: throughput, first audio, and load that arrives at random.

    python benchmarks/serving.py [--size voice|full] [--side torch,mlx] [--streams 1,4] [--requests 8]
        [--rounds 1] [--frames 100,300] [--compare] [--load 0.7 --arrivals 200]
        [--precision float32|tf32|bfloat16]

`full` is Dia-1.6B's shape in bfloat16 and DAC at 44.1 kHz, both with random weights, on an NVIDIA GPU;
`voice` the embedded voice in float32. Requests have lengths of their own, drawn evenly between the two
--frames, and sound is taken as 16-bit PCM, as a server gives it.

    streams      requests spoken at once, all the time, --requests in all and at least twice as many: seconds
                 of sound per second, and per second of processor time, which counts on a busy machine
    first audio  of a request by itself in a warm engine, from `submit` to its first part
    of both      with --compare: throughput of texts of equal length, divided by that of `generate_codes` of
                 as many texts and then the codec for all of them; and divided by that of `generate_batch`
    load         --arrivals requests, arriving at random (Poisson) at --load of the measured capacity: first
                 audio by percentile, and gaps in playback
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from benchmarks.lib.dia_networks import TEXT, full_pipeline
from benchmarks.lib.timing import arguments, batch_rate
from tts_core.codecs.dac_calls import Passage
from tts_core.dia.options import DiaOptions
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.speech import Speech
from tts_core.speaking.pipeline import Pipeline
from tts_core.speaking.speech import Sound
from tts_core.voice.embedded import CODEC, DIA

NAME = "dia"


def load(size: str, side: str) -> Pipeline:
    """Load a Dia with its codec."""
    if size == "full":
        return full_pipeline("bfloat16")
    if side == "torch":
        from torch_ref.dia.pipeline import DiaPipeline

        return DiaPipeline.load(DIA, codec=CODEC, dtype="float32")
    from mlx_port.dia.pipeline import DiaPipeline
    from mlx_port.stored_voice import converted_voice

    return DiaPipeline.load(converted_voice(), dtype="float32")


@dataclass
class Heard:
    """A request as its listener heard it. Seconds are measured from `submit`.

    arrivals: (seconds, seconds of sound) of each part.
    """

    submitted: float
    arrivals: list[tuple[float, float]] = field(default_factory=list)

    def listen(self, speech: Speech) -> None:
        """Take the parts that are there, as 16-bit PCM."""
        while True:
            try:
                part = speech.get(0)
            except TimeoutError:
                return
            if part is None:
                return
            pcm = (part.audio * 32767).astype("<i2").tobytes()
            self.arrivals.append((time.perf_counter() - self.submitted, len(pcm) / 2 / part.sample_rate))

    @property
    def first(self) -> float:
        """Seconds to the first part with sound."""
        return next(moment for moment, seconds in self.arrivals if seconds)

    @property
    def sound(self) -> float:
        """Seconds of sound."""
        return sum(seconds for _, seconds in self.arrivals)

    @property
    def gap(self) -> float:
        """Longest wait of a player that starts with the first part, in seconds."""
        played, longest = self.first, 0.0
        for moment, seconds in self.arrivals:
            longest = max(longest, moment - played)
            played = max(played, moment) + seconds
        return longest


class Bench:
    """An engine with one model, and requests for it."""

    def __init__(self, pipeline: Any, places: int, frames: tuple[int, int]):
        self.pipeline, self.frames = pipeline, frames
        self.random = np.random.default_rng(0)
        self.source = _Loaded(pipeline)
        self.engine = SpeechEngine(cast(Any, {NAME: self.source}), places=places, max_queue=1000, freeze=True)
        self.engine.start()
        self.engine.wait_ready()

    def submit(self, seed: int, on_end: Callable[[], None] | None = None) -> Heard:
        """Ask for a text of random length."""
        frames = int(self.random.integers(self.frames[0], self.frames[1] + 1))
        heard = Heard(time.perf_counter())

        def listen(speech: Speech) -> None:
            heard.listen(speech)
            if on_end is not None and speech.state == "ended":
                on_end()

        self.engine.submit(NAME, TEXT, options={"max_frames": frames, "seed": seed}, on_part=listen)
        return heard

    def streams(self, streams: int, requests: int) -> tuple[float, list[Heard]]:
        """Speak `requests` requests, `streams` at a time; return the seconds and the sounds."""
        import threading

        free, heard = threading.Semaphore(streams), []
        started = time.perf_counter()
        for seed in range(requests):
            free.acquire()
            heard.append(self.submit(seed, free.release))
        for _ in range(streams):
            free.acquire()
        return time.perf_counter() - started, heard

    def load(self, rate: float, arrivals: int) -> list[Heard]:
        """Speak requests that arrive at random, `rate` a second."""
        import threading

        ended, heard = threading.Semaphore(0), []
        for seed in range(arrivals):
            time.sleep(float(self.random.exponential(1 / rate)))
            heard.append(self.submit(seed, ended.release))
        for _ in range(arrivals):
            ended.acquire()
        return heard


class _Loaded:
    """A source of a model that is in memory."""

    fed = False

    def __init__(self, pipeline: Any):
        self.pipeline = pipeline

    def request(self, text: str, options: Any, prompt: Any) -> Any:
        return self.pipeline.request(text, DiaOptions(**options), prompt)

    def load(self) -> Any:
        return self.pipeline


def one_after_the_other(pipeline: Any, texts: int, frames: int) -> float:
    """Seconds of sound per second of `generate_codes` of as many texts, and then the codec for all."""
    pipeline.generate_codes([TEXT] * texts, max_frames=40)
    started = time.perf_counter()
    codes = pipeline.generate_codes([TEXT] * texts, max_frames=frames, seed=list(range(texts)))
    windows = [
        Sound(text_codes, 0, source=Passage(text_codes, 0, text_codes.shape[1])) for text_codes in codes
    ]
    sounds = pipeline.engine.launch(windows, pipeline.engine.policy).take()
    return sum(map(len, sounds)) / pipeline.sample_rate / (time.perf_counter() - started)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, in milliseconds."""
    found = np.percentile(values, [50, 95, 100])
    return dict(zip(("p50", "p95", "max"), (round(1e3 * float(item), 1) for item in found), strict=True))


def measure(args: argparse.Namespace, side: str) -> None:
    """Measure one side, and print what was found."""
    pipeline: Any = load(args.size, side)
    low, high = numbers(args.frames)
    pipeline.engine.codec.precision = args.precision
    print(f"{side}, {args.size}, {pipeline.engine.host.backend}")

    def note(name: str, found: Any) -> None:
        print(side, name, json.dumps(found), flush=True)

    counts, benches = numbers(args.streams), dict[int, Bench]()

    def opened(count: int) -> Bench:
        """Open a bench with every window size once; one at a time, unless they take turns."""
        if count not in benches:
            while benches and args.rounds == 1:
                benches.popitem()[1].engine.close()
            benches[count] = Bench(pipeline, count, (low, high))
            benches[count].streams(count, count)
        return benches[count]

    rounds: list[dict[int, np.ndarray]] = []
    for _round in range(args.rounds):
        rounds.append({})
        for count in counts:
            bench = opened(count)
            firsts = [bench.streams(1, 1)[1][0].first for _ in range(5)]
            used = time.process_time()
            seconds, heard = bench.streams(count, max(args.requests, 2 * count))
            used = time.process_time() - used
            rounds[-1][count] = sum(result.sound for result in heard) / np.array([seconds, used])
            found = {
                "throughput": rounds[-1][count][0],
                "throughput of processor time": rounds[-1][count][1],
                "requests a second": len(heard) / seconds,
                "first audio": percentiles(firsts),
                "gap": percentiles([result.gap for result in heard]),
            }
            note(f"{count} streams, round {_round + 1}", found)
    least, *_, most = sorted(counts) * 2
    if most > least:
        ratios = np.median([own_round[most] / own_round[least] for own_round in rounds], axis=0)
        note(f"{most} by {least} streams", {"throughput": ratios[0], "of processor time": ratios[1]})
    bench = opened(most)
    if args.compare:
        frames = bench.frames = (low + high) // 2, (low + high) // 2
        both, whole = (
            one_after_the_other(pipeline, most, frames[0]),
            batch_rate(pipeline, TEXT, most, frames[0]),
        )
        seconds, heard = bench.streams(most, 3 * most)
        served = sum(result.sound for result in heard) / seconds
        note("of both", {"served": served, "one after the other": both, "ratio": served / both})
        note("of generate_batch", {"served": served, "generate_batch": whole, "ratio": served / whole})
        bench.frames = low, high
    if args.load:
        rate = args.load * found["requests a second"]
        heard = bench.load(rate, args.arrivals)
        firsts, gaps = [result.first for result in heard], [result.gap for result in heard]
        note("load", {"rate": rate, "first audio": percentiles(firsts), "gap": percentiles(gaps)})
    for bench in benches.values():
        bench.engine.close()


def numbers(given: str) -> list[int]:
    """Read "1,4"."""
    return [int(item) for item in given.split(",") if item]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--size", choices=("voice", "full"), default="voice")
    parser.add_argument("--side", default="torch,mlx")
    parser.add_argument("--streams", default="1,4")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1, help="of all stream counts, by turns")
    parser.add_argument("--frames", default="100,300")
    parser.add_argument("--compare", action="store_true", help="measure `of both`")
    parser.add_argument("--load", type=float, default=0.0)
    parser.add_argument("--arrivals", type=int, default=200)
    parser.add_argument("--precision", default="float32", help="of the codec, on CUDA")
    args = parser.parse_args()
    for side in args.side.split(","):
        measure(args, side)


if __name__ == "__main__":
    main()
