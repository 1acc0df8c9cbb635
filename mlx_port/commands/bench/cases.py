"""Cases of `mlx-port bench`: a model, and runs whose memory is estimated before they begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx_port.commands.loading_flags import Loading
from mlx_port.commands.opening import on_this_machine
from mlx_port.loading import open_parts
from mlx_port.runtime.memory import backend_name, free_bytes
from tts_core import models
from tts_core.config import Configs
from tts_core.errors import NotFoundError, ResourceError, UsageError, did_you_mean
from tts_core.memory.fits import gigabytes
from tts_core.memory.machine import Machine
from tts_core.models import Speed

GROUP = 64  # weights per scale of quantized runs
PLAIN = {"16": ("bfloat16", "float16"), "32": ("float32",)}


@dataclass(frozen=True)
class Subject:
    """The model.

    folder: that was converted; None has random weights.
    dtype, quantization: as it is stored.
    published: name of the published weights whose sizes a random one has.
    """

    name: str
    configs: Configs
    dtype: str
    quantization: dict[str, Any] | None = None
    folder: str | None = None
    published: str | None = None

    @property
    def speed(self) -> Speed:
        """Facts about its steps."""
        return models.MODELS[self.name].speed


@dataclass(frozen=True)
class Case:
    """One measurement. estimated: bytes at its peak.  refused: why it does not run here."""

    dtype: str
    quantization: dict[str, Any] | None  # as in config.json
    batch: int
    text: str
    frames: int
    estimated: int
    refused: str | None = None

    @property
    def bits(self) -> int:
        """Bits per weight, scales not counted."""
        if self.quantization is not None:
            return self.quantization["bits"]
        return 32 if self.dtype == "float32" else 16


def choose_subject(
    model: str | None, random: str | None, *, revision: str | None = None, offline: bool = False
) -> Subject:
    """Open the model that the flags name, without its weights; None for both is the embedded voice."""
    if random is not None:
        return _published(random)
    if model is None:
        from mlx_port.stored_voice import converted_voice

        model = str(converted_voice())
    else:
        folder, _ = on_this_machine(model, Loading(revision=revision, offline=offline))
        model = str(folder)
    parts = open_parts(Path(model))
    name = str(parts.model)
    return Subject(name, parts.configs, parts.dtype_of(name), parts.quantization_of(name), folder=model)


def _published(given: str) -> Subject:
    known = models.published()
    published = next(iter(models.MODELS[given].sizes)) if given in models.NAMES else given
    if published not in known:
        hint = did_you_mean(given, [*models.NAMES, *known])
        every = ", ".join((*models.NAMES, *known))
        raise NotFoundError(f"random: {given} is not a published model; {hint or f'choose from {every}'}")
    name, configs = known[published]
    return Subject(name, configs, "bfloat16", published=published)


def fitting(
    subject: Subject,
    text: str | None,
    seconds: float,
    *,
    batch: Sequence[int],
    dtypes: Sequence[str] | None,
    bits: Sequence[str] | None,
) -> list[Case]:
    """List the measurements, those of the same weights together; those that do not fit in memory say so.

    Raises UsageError for flags that do not go together.
    """
    plan, backend, free = models.MODELS[subject.name].code().plan, backend_name(), free_bytes()
    said = subject.speed.text if text is None else text
    frames = math.ceil(seconds * subject.speed.frame_rate(subject.configs))
    cases = []
    for dtype, how in _stored(subject, dtypes, bits):
        for texts in batch:
            job = plan.job(subject.configs, said, seconds, texts)
            guess = plan.footprint(subject.configs, job, Machine(dtype, backend, free, how))
            refused = None
            if free is not None and guess.total > free:
                refused = f"takes {gigabytes(guess.total)} of memory, {gigabytes(free)} are free"
            cases.append(Case(dtype, how, texts, said, frames, guess.total, refused))
    return cases


def check_fits(cases: Sequence[Case]) -> None:
    """Raise ResourceError if none fits in memory."""
    if all(case.refused for case in cases):
        smallest = min(cases, key=lambda case: case.estimated)
        raise ResourceError(
            f"memory: the smallest of {len(cases)} runs ({smallest.bits} bits, batch {smallest.batch}) "
            f"{smallest.refused}; choose fewer --bits, a smaller --batch or fewer --seconds"
        )


def on_cpu() -> bool:
    """Return True if MLX has no GPU here."""
    return backend_name() == "mlx-cpu"


def report_forms(dtypes: Sequence[str] | None) -> dict[str, Sequence[str]]:
    """Choose the dtypes, if none is given, and bits of --report; on a CPU float32, and no bits.

    With 8 bits a product of 64 rows takes more than ten times as long there as in float32 with OpenBLAS.
    """
    dtypes = dtypes or ["float32" if on_cpu() else "bfloat16"]
    plain = [bits for bits, fitting in PLAIN.items() if set(fitting) & set(dtypes)]
    return {"dtypes": dtypes, "bits": plain if on_cpu() else [*plain, "8", "4"]}


def _stored(
    subject: Subject, dtypes: Sequence[str] | None, bits: Sequence[str] | None
) -> list[tuple[str, dict[str, Any] | None]]:
    """List the forms of the weights: dtype and quantization."""
    if subject.quantization is not None:
        if bits is not None:
            raise UsageError(f"bits: {subject.folder} is already quantized; leave the flag out")
        return [(dtype, subject.quantization) for dtype in dtypes or [subject.dtype]]
    if bits is None:
        return [(dtype, None) for dtype in dtypes or [subject.dtype]]
    forms: list[tuple[str, dict[str, Any] | None]] = []
    for number in bits:
        if number not in PLAIN:
            how = {"group_size": GROUP, "bits": int(number), "mode": "affine"}
            forms += [(dtype, how) for dtype in dtypes or [subject.dtype]]
            continue
        fitting = PLAIN[number] if dtypes is None else [name for name in dtypes if name in PLAIN[number]]
        if not fitting:
            raise UsageError(f"bits: none of --dtype {','.join(dtypes or ())} has {number} bits")
        forms += [(dtype, None) for dtype in (fitting[:1] if dtypes is None else fitting)]
    return forms
