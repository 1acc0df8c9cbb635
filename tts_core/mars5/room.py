"""Refusing, before anything is allocated, what of MARS5 cannot fit into memory; and saying what would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tts_core.errors import ResourceError
from tts_core.mars5.memory import Mars5Job, estimate
from tts_core.memory.fits import advice, gigabytes, halves_of, narrower, quantised_copies, that_fit

SMALLEST = Mars5Job(prompt_ids=1, frames=1)


def check_loading(
    configs: Mapping[str, Any],
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
) -> None:
    """Raise ResourceError, naming the dtype or quantisation that fits, unless `free` bytes hold all weights;
    None is unknown, and passes.
    """

    def takes(dtype: str, quantization: Mapping[str, Any] | None, backend: str) -> int:
        how: dict[str, Any] = {"dtype": dtype, "backend": backend, "quantization": quantization}
        return estimate(configs, SMALLEST, **how).loaded

    needed = takes(dtype, quantization, backend)
    if free is None or needed <= free:
        return
    options = {
        f"dtype {name}": takes(name, quantization, backend) for name in narrower(dtype, halves_of(backend))
    }
    if quantization is None:
        options |= quantised_copies(takes, backend)
    raise ResourceError(
        f"memory: MARS5's weights in {dtype} take {gigabytes(needed)} on {backend}, "
        f"{gigabytes(free)} are free; {advice(that_fit(options, free))}"
    )


def check_running(
    configs: Mapping[str, Any], job: Mars5Job, *, dtype: str, backend: str, free: int | None
) -> None:
    """Raise ResourceError, naming what fits, unless `free` bytes hold what `job` adds to a loaded model; None
    passes.
    """

    def takes(job: Mars5Job, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend).running

    needed = takes(job)
    if free is None or needed <= free:
        return
    options: dict[str, int] = {}
    if job.frames > 1:
        options["pieces half as long (piece_seconds)"] = takes(replace(job, frames=job.frames // 2))
    if job.deep:
        ids = max(1, job.prompt_ids - job.prompt_frames)
        options["a shallow clone"] = takes(replace(job, deep=False, prompt_ids=ids))
    if job.guided:
        options["nar_guidance_w 1"] = takes(replace(job, guided=False))
    if job.max_len > 2 * (job.prompt_ids + job.frames):
        room = job.prompt_ids + job.frames
        options[f"generate_max_len_override {room}"] = takes(replace(job, max_len=room))
    options |= {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}
    rate = configs["encodec"].frame_rate
    raise ResourceError(
        f"memory: {job.frames / rate:.1f} s of speech and {job.prompt_frames / rate:.1f} s of reference "
        f"take {gigabytes(needed)} on {backend} beside the weights, {gigabytes(free)} are free; "
        f"{advice(that_fit(options, free))}"
    )
