"""Refusing, before anything is allocated, what cannot fit into memory; and saying what would fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tts_core.codecs.dac import DacConfig
from tts_core.codecs.policy import CodecPolicy, fitting, own, smaller
from tts_core.dia.config import DiaConfig
from tts_core.dia.memory import Job, codec_windows, estimate
from tts_core.errors import ResourceError
from tts_core.memory.fits import advice, gigabytes, narrower, quantised_copies, that_fit

SMALLEST = Job(text_bytes=1, frames=1)


def check_loading(
    config: DiaConfig,
    codec: DacConfig,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Raise ResourceError unless `free` bytes hold the weights; None is unknown, and passes."""

    def takes(dtype: str, quantization: Mapping[str, Any] | None, backend: str) -> int:
        return estimate(
            config, codec, SMALLEST, dtype=dtype, backend=backend, quantization=quantization
        ).loaded

    needed = takes(dtype, quantization, backend)
    if free is None or needed <= free:
        return
    options = {f"dtype {name}": takes(name, quantization, backend) for name in _narrower(dtype, backend)}
    if quantization is None:
        options |= quantised_copies(takes, backend)
    raise ResourceError(
        f"memory: the model's weights in {dtype} take {gigabytes(needed)} on {backend}, "
        f"{gigabytes(free)} are free; {advice(that_fit(options, free))}"
    )


def check_running(
    config: DiaConfig,
    codec: DacConfig,
    job: Job,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    policy: CodecPolicy | None = None,
) -> None:
    """Raise ResourceError unless `free` bytes hold what `job` adds to a loaded model; None passes.

    policy: the codec's windows; None takes the backend's own.
    """
    windows = policy or own(backend)

    def takes(job: Job, dtype: str = dtype, policy: CodecPolicy = windows) -> int:
        return estimate(config, codec, job, dtype=dtype, backend=backend, policy=policy).running

    needed = takes(job)
    if free is None or needed <= free:
        return
    fitting = []
    batch = _largest(job.batch - 1, lambda batch: takes(replace(job, batch=batch)) <= free)
    if batch:
        fitting.append(f"a batch of {batch}")
    frames = _largest(job.frames - 1, lambda frames: takes(replace(job, frames=frames)) <= free)
    if frames:
        fitting.append(f"max_frames {frames} ({frames / codec.frame_rate:.1f} s)")
    fitting += [f"dtype {name}" for name in _narrower(dtype, backend) if takes(job, name) <= free]
    smaller_ones = [less.max_frames for less in smaller(windows) if takes(job, policy=less) <= free]
    if smaller_ones:
        fitting.append(f"codec windows of {max(smaller_ones)} frames")
    raise ResourceError(
        f"memory: {_told(job, codec)} take {gigabytes(needed)} on {backend} beside the weights, "
        f"{gigabytes(free)} are free; {advice(fitting)}"
    )


def fitting_batch(
    config: DiaConfig,
    codec: DacConfig,
    job: Job,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    policy: CodecPolicy,
) -> int:
    """How many texts of a job's batch run side by side in `free` bytes: all where that is unknown, and one
    where not even that fits.
    """

    def fits(batch: int) -> bool:
        less = replace(job, batch=batch)
        taken = estimate(config, codec, less, dtype=dtype, backend=backend, policy=policy).running
        return free is None or taken <= free

    return max(1, _largest(job.batch, fits))


def codec_policy(codec: DacConfig, *, dtype: str, backend: str, free: int | None) -> CodecPolicy:
    """The largest windows of the codec, up to the backend's own, that take at most half of `free` bytes.

    dtype: of the network beside it. None is unknown, and gives the backend's own.
    """

    def takes(policy: CodecPolicy) -> int:
        return codec_windows(codec, dtype=dtype, backend=backend, policy=policy)

    return fitting(takes, backend, free)


def _told(job: Job, codec: DacConfig) -> str:
    texts = "one text" if job.batch == 1 else f"{job.batch} texts"
    return f"{texts} of {job.text_bytes} bytes and {job.frames / codec.frame_rate:.1f} s of speech"


def _narrower(dtype: str, backend: str) -> list[str]:
    """float16 on CUDA only, where a GPU may lack bfloat16; elsewhere its overflows are no help."""
    return narrower(dtype, ("bfloat16", "float16") if backend == "torch-cuda" else ("bfloat16",))


def _largest(limit: int, fits: Any) -> int:
    """The largest number up to `limit` that fits, by halving; 0 if none does."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
