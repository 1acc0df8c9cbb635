"""Refusing, before anything is allocated, what of MetaVoice cannot fit into memory; and saying what would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tts_core.errors import ResourceError
from tts_core.memory.fits import advice, gigabytes, halves_of, narrower, quantised_copies, that_fit
from tts_core.metavoice.memory import MetaVoiceJob, estimate
from tts_core.metavoice.request import Speech
from tts_core.metavoice.sampling import FirstStageSampling

SMALLEST = MetaVoiceJob(text_ids=1, frames=1)


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
    options = {}
    if quantization is None or backend.startswith("torch"):
        options |= {
            f"dtype {name}": takes(name, quantization, backend)
            for name in narrower(dtype, halves_of(backend))
        }
    if quantization is None:
        options |= quantised_copies(takes, backend)
    raise ResourceError(
        f"memory: MetaVoice's weights in {dtype} take {gigabytes(needed)} on {backend}, "
        f"{gigabytes(free)} are free; {advice(that_fit(options, free))}"
    )


def check_running(
    configs: Mapping[str, Any],
    job: MetaVoiceJob,
    *,
    dtype: str,
    backend: str,
    free: int | None,
) -> None:
    """Raise ResourceError, naming what fits, unless `free` bytes hold what `job` adds to a loaded model; None
    passes.
    """

    def takes(job: MetaVoiceJob, dtype: str = dtype) -> int:
        return estimate(configs, job, dtype=dtype, backend=backend).running

    needed = takes(job)
    if free is None or needed <= free:
        return
    options = {}
    for batch in range(job.batch - 1, 0, -1):
        if takes(replace(job, batch=batch)) <= free:
            options[f"a batch_size of {batch}"] = takes(replace(job, batch=batch))
            break
    options |= {f"dtype {name}": takes(job, name) for name in narrower(dtype, halves_of(backend))}
    if job.decoder == "mbd":
        options["decoder vocos"] = takes(replace(job, decoder="vocos"))
    if job.frames > 1:
        half = replace(job, frames=job.frames // 2, text_ids=max(1, job.text_ids // 2))
        options["pieces half as long"] = takes(half)
    pieces = "a piece" if job.batch == 1 else f"{job.batch} pieces"
    raise ResourceError(
        f"memory: {pieces} of {job.text_ids} ids and {job.frames} frames take {gigabytes(needed)} on "
        f"{backend} beside the weights, {gigabytes(free)} are free; {advice(that_fit(options, free))}"
    )


def job_of(
    speeches: Sequence[Speech], sampling: FirstStageSampling, decoder: str, batch_size: int
) -> MetaVoiceJob:
    """What texts may take at their longest."""
    pieces = [
        (len(piece.first), speech.frames(place))
        for speech in speeches
        for place, piece in enumerate(speech.pieces)
    ]
    together = min(batch_size, len(pieces))
    ids, frames = max(ids for ids, _ in pieces), max(frames for _, frames in pieces)
    return MetaVoiceJob(ids, frames, together, sampling.rows, decoder)
