"""Time the runs of `mlx-port bench`."""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_port.commands.bench.cases import Case, Subject
from mlx_port.commands.bench.parts import QuantizedParts, RandomParts
from mlx_port.loading import assemble, open_parts
from mlx_port.runtime.memory import peak_bytes
from tts_core import models
from tts_core.errors import CancelledError, GenerationError, ResourceError, SpeechError
from tts_core.pipeline import Progress
from tts_core.printable import counted
from tts_core.results import GenerationResult
from tts_core.speaking.pipeline import Pipeline
from tts_core.speed import voice

FEWEST = 3  # steps that a time is taken from
FASTEST = 1e-4  # seconds: a pipeline that asks again sooner has run no network in between
READ_BYTES, READS, READ_SECONDS = 2**29, 8, 0.5  # of one kind at most


@dataclass(frozen=True)
class Measured:
    """Medians of one case's runs.

    steps: timed in all runs.
    step_range: fastest and slowest run's median.
    host_ms: processor time of a step in the thread that builds and launches it; where MLX waits by spinning
        (CUDA), the wait counts.
    real_time_factor: of all texts together; as with the other times of speech None if the run was cut.
    peak_memory: bytes of MLX's allocator, weights included.
    """

    step_ms: float
    step_range: tuple[float, float]
    host_ms: float
    steps: int
    real_time_factor: float | None
    first_audio_seconds: float | None
    audio_seconds: float | None
    peak_memory: int


class Stopwatch(threading.Event):
    """A `cancel` that is set at `end`, and notes when a pipeline asks for it: between two steps.

    stages: of progress reports, in which steps run.  end: of time.perf_counter.
    """

    def __init__(self, stages: Collection[str], end: float = math.inf):
        super().__init__()
        self.stages, self.stage, self.end = stages, next(iter(stages)), end
        self.times: list[tuple[float, float]] = []  # of the clock, and of this thread's processor
        self.taken: list[float] = []  # by the steps so far, in seconds
        self.busy: list[float] = []  # of them, this thread's processor

    def is_set(self) -> bool:
        """Note the time. Return True at the end."""
        now = time.perf_counter()
        if self.stage in self.stages:
            self.times.append((now, time.thread_time()))
        return now > self.end

    def tell(self, progress: Progress) -> None:
        """Take note of the stage that begins."""
        if progress.stage not in self.stages or self.stage not in self.stages:
            self.stop()
        self.stage = progress.stage

    def stop(self) -> None:
        """End a series of steps: the time to the next one is no step."""
        for (before, idle), (after, busy) in pairwise(self.times):
            if after - before > FASTEST:
                self.taken.append(after - before)
                self.busy.append(busy - idle)
        self.times.clear()


def measure(
    subject: Subject,
    cases: Sequence[Case],
    *,
    runs: int,
    seconds: float = math.inf,
    tell: Callable[[str], None],
) -> list[Measured | SpeechError]:
    """Measure each case, or say why not; weights are loaded once for the cases that share them.

    seconds: for the runs of a case. A first run that takes longer is cut; further ones begin if they fit.
    tell: called with a line about each case before it starts.
    """
    measured: list[Measured | SpeechError] = []
    for _, group in groupby(cases, key=lambda case: (case.dtype, case.quantization)):
        alike, pipeline = list(group), None
        for case in alike:
            if case.refused is not None:
                tell(f"{case.dtype}, {case.bits} bits, batch {case.batch}: {case.refused}")
                measured.append(ResourceError(case.refused))
                continue
            tell(f"{case.dtype}, {case.bits} bits, batch {case.batch}: 1 run to warm up, {runs} timed")
            try:
                pipeline = pipeline or load(subject, case)
                measured.append(_measure(pipeline, subject, case, runs, seconds))
            except (GenerationError, ResourceError) as error:
                measured.append(error)
        del pipeline
        gc.collect()
        mx.clear_cache()
    return measured


def load(subject: Subject, case: Case) -> Pipeline:
    """Load the model as a case wants its weights."""
    if subject.folder is None:
        parts = RandomParts(
            subject.name, subject.configs, subject.speed.documents(subject.configs), case.dtype
        )
        parts.quantization = case.quantization
        return assemble(parts)
    spec = models.MODELS[subject.name]
    if subject.quantization == case.quantization:
        return assemble(open_parts(subject.folder, kinds=spec.parts, dtype=case.dtype))
    parts = QuantizedParts(subject.name, Path(subject.folder), spec.parts, case.dtype)
    parts.quantization = case.quantization
    return assemble(parts)


def _measure(pipeline: Pipeline, subject: Subject, case: Case, runs: int, seconds: float) -> Measured:
    end = time.perf_counter() + seconds
    first, watch, took = _speak(pipeline, subject, case, end)
    if not first:
        count = len(watch.taken)
        if count < FEWEST:
            raise GenerationError(f"bench: too slow here, {counted(count, 'step')} in {took:.0f} s")
        step, host = (1000 * statistics.median(item) for item in (watch.taken, watch.busy))
        return Measured(step, (step, step), host, count, None, None, None, peak_bytes())
    made = []
    while len(made) < runs and time.perf_counter() + took < end:
        made.append(_speak(pipeline, subject, case))
    made = made or [(first, watch, took)]  # it has warmed up, and counts if there is time for no other
    steps = [statistics.median(watch.taken) for _, watch, _ in made]
    audio = [sum(result.audio_seconds for result in results) for results, _, _ in made]
    return Measured(
        step_ms=1000 * statistics.median(steps),
        step_range=(1000 * min(steps), 1000 * max(steps)),
        host_ms=1000 * statistics.median(statistics.median(watch.busy) for _, watch, _ in made),
        steps=sum(len(watch.taken) for _, watch, _ in made),
        real_time_factor=statistics.median(
            took / sound for (_, _, took), sound in zip(made, audio, strict=True)
        ),
        first_audio_seconds=statistics.median(results[0].time_to_first_audio for results, _, _ in made),
        audio_seconds=audio[0],
        peak_memory=max(result.peak_memory_usage for results, _, _ in made for result in results),
    )


def _speak(
    pipeline: Pipeline, subject: Subject, case: Case, end: float = math.inf
) -> tuple[list[GenerationResult], Stopwatch, float]:
    """Speak a case's texts once. Returns the results, times of the steps, and seconds of all.

    end: of time.perf_counter, after which the run is cut and has no results.
    """
    watch = Stopwatch(subject.speed.stages, end)
    prompt = voice(models.MODELS[subject.name].of(subject.configs))
    how: dict[str, Any] = {"progress": watch.tell, "cancel": watch, "max_frames": case.frames}
    how |= subject.speed.options(subject.configs)
    started, results = time.perf_counter(), []
    with contextlib.suppress(CancelledError):
        if case.batch == 1:
            results = [pipeline.generate(case.text, prompt=prompt, seed=1, **how)]
        else:
            seeds = list(range(1, case.batch + 1))
            prompts = None if prompt is None else [prompt] * case.batch
            results = pipeline.generate_batch([case.text] * case.batch, prompts=prompts, seed=seeds, **how)
    took = time.perf_counter() - started
    watch.stop()
    if results and (len(watch.taken) < FEWEST or not all(result.samples for result in results)):
        raise GenerationError(
            f"bench: the model ended after {len(watch.taken)} steps; give a longer --text or more --seconds"
        )
    return results, watch, took


def read_rate() -> float:
    """Measure how fast this device reads memory, in bytes a second: the best of a sum and a product."""
    numbers = mx.ones((READ_BYTES // 2**16, 2**14), mx.float32)
    vector = mx.ones((2**14, 1), mx.float32)
    mx.eval(numbers, vector)
    best = min(_reads(lambda: numbers.sum())), min(_reads(lambda: numbers @ vector))
    return READ_BYTES / min(best)


def _reads(read: Callable[[], mx.array]) -> Iterator[float]:
    end = time.perf_counter() + READ_SECONDS
    for _ in range(READS):
        started = time.perf_counter()
        mx.eval(read())
        ended = time.perf_counter()
        yield ended - started
        if ended > end:
            return
