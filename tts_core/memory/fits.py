"""A model's memory plan: checks, before any allocation, that a run fits, and advice on what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from tts_core.config import Configs
from tts_core.errors import ResourceError, UsageError
from tts_core.memory.footprint import Footprint
from tts_core.memory.machine import BYTES, Machine
from tts_core.text import breaks
from tts_core.text.breaks import Paused
from tts_core.text.checks import check_words

QUANTIZATIONS = {  # flags of convert-weights → entry in config.json
    "-q": {"group_size": 64, "bits": 8, "mode": "affine"},
    "-q --q-bits 4": {"group_size": 64, "bits": 4, "mode": "affine"},
}
HALVES = {"torch-cpu": ("bfloat16",), "torch-mps": ("float16",)}  # fast 16-bit types; others have both

Job = Any  # a dataclass of the model's, with `frames` of speech and `batch`, the texts that share steps


@dataclass(frozen=True)
class Plan:
    """One model's memory plan.

    footprint: configurations of the parts by kind, job, machine → its bytes.
    longest: configurations, text, seconds → the longest job of one text that they allow; None is the longest
    text, or all of its speech.
    frame_rate: configurations → frames a second.
    fixed: backends on which a running batch is allocated at once.
    smaller: job → jobs that take less, by the options that make them.
    halves: 16-bit types to suggest, by backend.
    serial: texts of a batch of fixed size reach their peaks one after the other, which each is checked for.
    requantized: True if a dtype makes quantized weights smaller.
    """

    footprint: Callable[[Configs, Job, Machine], Footprint]
    longest: Callable[[Configs, Paused | None, float | None], Job]
    frame_rate: Callable[[Configs], float]
    fixed: Sequence[str]
    smaller: Callable[[Job], Mapping[str, Job]] = lambda job: {}
    halves: Callable[[str], Sequence[str]] = lambda backend: HALVES.get(backend, ("bfloat16", "float16"))
    requantized: bool = True
    serial: bool = False

    def job(self, configs: Configs, text: str | None, seconds: float | None, batch: int) -> Job:
        """Return the longest run of `batch` texts that the flags allow; None is the model's limit.

        Raises UsageError for a text without words, and for more seconds than a run has.
        """
        said = None if text is None else breaks.read("text", text)
        if said is not None:
            check_words("text", said.blanked)
        found, rate = self.longest(configs, said, seconds), self.frame_rate(configs)
        if seconds is not None and found.frames < int(seconds * rate):
            raise UsageError(
                f"seconds: {seconds:g} is more than this model's limit, {found.frames / rate:.1f}"
            )
        return replace(found, batch=batch)

    def check_loading(self, configs: Configs, machine: Machine) -> None:
        """Raise ResourceError, naming a dtype or quantization that fits, unless the weights fit."""
        smallest = self.longest(configs, None, None)

        def loaded(machine: Machine) -> int:
            return self.footprint(configs, smallest, machine).loaded

        if machine.fits(needed := loaded(machine)):
            return
        backend, is_plain = machine.backend, machine.quantization is None
        others: dict[str, Machine] = {}
        if self.requantized or is_plain or backend.startswith("torch"):
            others |= {f"dtype {other.dtype}": other for other in self._narrower(machine)}
        if is_plain:
            port = replace(machine, dtype="bfloat16", backend=backend if "mlx" in backend else "mlx-cpu")
            for flags, how in QUANTIZATIONS.items():
                others[f"a copy for MLX made with convert-weights {flags}"] = replace(port, quantization=how)
        what = f"memory: the model's weights in {machine.dtype} take {gigabytes(needed)} on {backend}"
        _refuse(what, machine, {name: loaded(other) for name, other in others.items()})

    def check_running(
        self, configs: Configs, job: Job, machine: Machine, part: Literal["running", "peak"] = "running"
    ) -> None:
        """Raise ResourceError, with the largest length and batch that fit, unless a loaded model runs a job.

        part: of the footprint: "peak" beside rows that are allocated.
        """

        def takes(job: Job, where: Machine = machine) -> int:
            return getattr(self.footprint(configs, job, where), part)

        if machine.fits(needed := takes(job)):
            return
        rate, options = self.frame_rate(configs), dict[str, int]()
        for field, words in (("batch", "a batch of {}"), ("frames", "max_frames {}, {:.1f} s")):

            def bounded(count: int, field: str = field) -> int:
                return takes(replace(job, **{field: count}))

            most = largest(getattr(job, field) - 1, lambda count, of=bounded: machine.fits(of(count)))
            if most:
                options[words.format(most, most / rate)] = bounded(most)
        options |= {f"dtype {other.dtype}": takes(job, other) for other in self._narrower(machine)}
        for policy in machine.policy.smaller() if machine.policy else ():
            if machine.fits(size := takes(job, replace(machine, policy=policy))):
                options[f"codec windows of {policy.max_frames} frames"] = size
                break
        options |= {name: takes(other) for name, other in self.smaller(job).items()}
        texts, take = ("one text", "takes") if job.batch == 1 else (f"{job.batch} texts", "take")
        if (seconds := job.frames / rate) >= 0.05:  # else only the batch is opened
            texts += f" of {seconds:.1f} s of speech"
        what = f"memory: {texts} {take} {gigabytes(needed)}"
        _refuse(f"{what} on {machine.backend} beside the weights", machine, options)

    def places(self, configs: Configs, whole: Callable[[int], Job], most: int, machine: Machine) -> int:
        """Count the texts, at most `most`, whose batch fits; 0 if not even one does.

        whole: texts → the job of a batch of so many.
        """
        return largest(
            most, lambda texts: machine.fits(self.footprint(configs, whole(texts), machine).running)
        )

    def _narrower(self, machine: Machine) -> Iterator[Machine]:
        """Yield the machine with float32, and with each half type, where that is smaller than its dtype."""
        for name in ("float32", *self.halves(machine.backend)):
            if BYTES[name] < machine.size:
                yield machine.in_dtype(name)


def together(jobs: Sequence[Job]) -> Job:
    """Bound jobs of one model that share steps: each number by the largest; texts are added."""
    found = {}
    for field in fields(jobs[0]):
        values = [getattr(job, field.name) for job in jobs]
        found[field.name] = sum(values) if field.name == "batch" else max(values)
    return replace(jobs[0], **found)


def check_places(most: int) -> None:
    """Raise UsageError unless a batch can have so many places."""
    if not isinstance(most, int) or most < 1:
        raise UsageError(f"places: {most!r:.40} is not a number of texts, 1 or more")


def _refuse(what: str, machine: Machine, options: Mapping[str, int]) -> None:
    """Raise ResourceError with the options that fit, and their sizes."""
    assert machine.free is not None, "what is not known fits"
    fitting = [f"{name} ({gigabytes(size)})" for name, size in options.items() if size <= machine.free]
    advice = f"{' or '.join(fitting)} would fit" if fitting else "free some memory, or use a larger machine"
    raise ResourceError(f"{what}, {gigabytes(machine.free)} are free; {advice}")


def largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number up to `limit` that fits, by bisection; 0 if even 1 does not."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def gigabytes(size: int) -> str:
    """Format bytes as "1.23 GB"."""
    return f"{size / 1e9:.2f} GB"
