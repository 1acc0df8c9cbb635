"""Checks, before any allocation, that a run fits in memory, and advice on what would fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tts_core.errors import ResourceError, UsageError
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BYTES, Estimate

QUANTIZATIONS = {  # flags of convert-weights → entry in config.json
    "-q": {"group_size": 64, "bits": 8, "mode": "affine"},
    "-q --q-bits 4": {"group_size": 64, "bits": 4, "mode": "affine"},
}
HALVES = {"torch-cpu": ("bfloat16",), "torch-mps": ("float16",)}  # fast 16-bit types; others have both

Job = TypeVar("Job", bound=Any)  # a dataclass of the model's
Plan = Callable[[Job, Machine], Estimate]
Option = tuple[str, Job, Machine]  # a job that takes less, or a machine that needs less, and its name


def check_loading(
    title: str,
    plan: Plan[Job],
    smallest: Job,
    machine: Machine,
    *,
    halves: Sequence[str] | None = None,
    requantized: bool = True,
) -> None:
    """Raise ResourceError, naming a dtype or quantization that fits, unless the weights fit.

    title: of the model, in the message.
    plan: estimates a job of the model.
    smallest: any job; only what is loaded counts.
    halves: 16-bit types to suggest; None uses the backend's fast ones.
    requantized: True if a dtype makes quantized weights smaller.
    """
    needed = plan(smallest, machine).loaded
    if machine.free is None or needed <= machine.free:
        return
    dtype, backend, is_plain = machine.dtype, machine.backend, machine.quantization is None
    others: dict[str, Machine] = {}
    if requantized or is_plain or backend.startswith("torch"):
        others |= {f"dtype {other.dtype}": other for other in narrower(machine, halves)}
    if is_plain:
        port = backend if backend.startswith("mlx") else "mlx-cpu"
        for flags, how in QUANTIZATIONS.items():
            copy = replace(machine, dtype="bfloat16", backend=port, quantization=how)
            others[f"a copy for MLX made with convert-weights {flags}"] = copy
    options = {name: plan(smallest, other).loaded for name, other in others.items()}
    raise ResourceError(
        f"memory: {title}'s weights in {dtype} take {gigabytes(needed)} on {backend}, "
        f"{gigabytes(machine.free)} are free; {advice(options, machine.free)}"
    )


def check_running(
    what: str, plan: Plan[Job], job: Job, machine: Machine, smaller: Callable[[], Iterable[Option[Job]]]
) -> None:
    """Raise ResourceError, naming what would fit, unless `job` on a loaded model fits.

    what: the job, in the message.
    plan: estimates a job of the model.
    smaller: other jobs and machines; only called for the message.
    """

    def options() -> dict[str, int]:
        return {name: plan(other, where).running for name, other, where in smaller()}

    check(what, plan(job, machine).running, machine, options)


def check(what: str, needed: int, machine: Machine, options: Callable[[], Mapping[str, int]] = dict) -> None:
    """Raise ResourceError, naming what would fit, unless a generation fits.

    what: the generation, in the message.
    needed: bytes besides the weights.
    options: bytes of other generations; only called for the message.
    """
    if machine.free is None or needed <= machine.free:
        return
    raise ResourceError(
        f"memory: {what} take {gigabytes(needed)} on {machine.backend} beside the weights, "
        f"{gigabytes(machine.free)} are free; {advice(options(), machine.free)}"
    )


def less(plan: Plan[Job], job: Job, machine: Machine, field: str) -> Job | None:
    """Return the job that fits with the most of a field, but less than it has; None if none fits."""

    def changed(value: int) -> Job:
        return replace(job, **{field: value})

    most = largest(getattr(job, field) - 1, lambda value: machine.fits(plan(changed(value), machine).running))
    return changed(most) if most else None


def fitting(plan: Plan[Job], job: Job, machine: Machine) -> int:
    """Count the texts of a job's batch that fit together; at least one."""
    found = job if machine.fits(plan(job, machine).running) else less(plan, job, machine, "batch")
    return 1 if found is None else found.batch


def check_places(most: int) -> None:
    """Raise UsageError unless a batch can have so many places."""
    if not isinstance(most, int) or most < 1:
        raise UsageError(f"places: {most!r:.40} is not a number of texts, 1 or more")


def places(most: int, needed: Callable[[int], int], machine: Machine) -> int:
    """Count the texts, at most `most`, whose batch fits. Raises ResourceError if not even one does.

    needed: bytes of a batch of so many texts, besides the weights.
    """
    check_places(most)
    found = most if machine.free is None else largest(most, lambda texts: machine.fits(needed(texts)))
    if not found:
        check("a batch of one text", needed(1), machine)
    return found


def narrower(machine: Machine, halves: Sequence[str] | None = None) -> Iterator[Machine]:
    """Yield the machine with float32, and with each half type, where that is smaller than its dtype.

    halves: None is the backend's fast ones.
    """
    for name in ("float32", *(halves_of(machine.backend) if halves is None else halves)):
        if BYTES[name] < machine.size:
            yield machine.in_dtype(name)


def dtypes(job: Job, machine: Machine, halves: Sequence[str] | None = None) -> Iterator[Option[Job]]:
    """Yield a job on machines of narrower dtypes; arguments as in `narrower`."""
    for other in narrower(machine, halves):
        yield f"dtype {other.dtype}", job, other


def halves_of(backend: str) -> tuple[str, ...]:
    """Return the fast 16-bit types of a backend, for a network that does not overflow in them."""
    return HALVES.get(backend, ("bfloat16", "float16"))


def advice(options: Mapping[str, int], free: int) -> str:
    """Write the end of an error message: the options that fit in `free` bytes, with their sizes."""
    fitting = [f"{option} ({gigabytes(size)})" for option, size in options.items() if size <= free]
    return f"{' or '.join(fitting)} would fit" if fitting else "free some memory, or use a larger machine"


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
