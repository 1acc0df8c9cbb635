"""Loss of a conversion: by tensor, and in the network's predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mlx_port.commands.verify.measure import EPS, decibels
from tts_core import models

if TYPE_CHECKING:
    from converters.published import ModelPart
    from converters.rules.dequantize import Quantization

CHUNK = 2**22  # numbers compared at a time
# half a step, relative; float32 is copied, but folded weight norms may differ in their last bits
ROUNDING = {"float32": 4 * EPS["float32"], "bfloat16": EPS["bfloat16"] / 2, "float16": EPS["float16"] / 2}
SMALLEST_STEP = {"float32": 2.0**-149, "bfloat16": 2.0**-133, "float16": 2.0**-24}
# share of a group's largest number: a power of two as scale may clip a third, nvfp4's small scales round to
# zero
SHARE = {"mxfp4": 0.5, "mxfp8": 0.5, "nvfp4": 1.0}


@dataclass(frozen=True)
class TensorClass:
    """Tensors of one kind. snr_db: of the converted ones; infinite if all are equal."""

    name: str
    tensors: int
    parameters: int
    snr_db: float
    error: float  # largest absolute difference


@dataclass(frozen=True)
class Fault:
    """Tensor whose error exceeds what its number format explains, with its worst number."""

    part: str
    tensor: str
    error: float
    allowed: float


@dataclass(frozen=True)
class Loss:
    """Teacher-forced predictions of a converted network compared with its source's; conditional rows only.

    codes: number of predictions.
    agreement: share with the same likeliest code.
    divergence: mean Kullback-Leibler divergence from the source's distribution.
    targets: number of predictions whose code is fed next; cross_entropy of those, in nats per code.
    """

    codes: int
    agreement: float
    divergence: float
    targets: int
    source_cross_entropy: float
    cross_entropy: float

    @property
    def change(self) -> float:
        """Change of the cross-entropy."""
        return self.cross_entropy - self.source_cross_entropy


def compare_tensors(
    title: str, source: ModelPart, destination: ModelPart, groups: Mapping[str, str]
) -> tuple[list[TensorClass], list[Fault]]:
    """Compare every tensor of a network, reading one at a time.

    title: of the part.  groups: as in tts_core.nn.probe.Probe.
    """
    sums: dict[str, list[float]] = {}
    faults = []
    for name in source.names():
        known = [group for part, group in groups.items() if part in name]
        group = known[0] if known else _by_module(title, source.kind, name)
        total = sums.setdefault(group, [0, 0, 0.0, 0.0, 0.0])
        worst = Fault(title, name, 0.0, 0.0)
        for before, after, allowed in _pieces(source, destination, name):
            difference = np.abs(after.astype(np.float64) - before)
            difference[np.isnan(difference)] = np.inf
            total[1] += before.size
            total[2] += float(np.square(before, dtype=np.float64).sum())
            total[3] += float(np.square(difference).sum())
            total[4] = max(total[4], float(difference.max(initial=0.0)))
            over = np.where(difference > allowed, difference, 0.0)
            if over.any() and over.max() > worst.error:
                at = np.unravel_index(int(over.argmax()), over.shape)
                worst = Fault(title, name, float(over[at]), float(allowed[at]))
        total[0] += 1
        faults += [worst] * (worst.error > 0)
    classes = [
        TensorClass(name, int(tensors), int(count), decibels(signal, noise), largest)
        for name, (tensors, count, signal, noise, largest) in sums.items()
    ]
    return classes, faults


def teacher_forced(source_logits: np.ndarray, logits: np.ndarray, targets: np.ndarray) -> Loss:
    """Compare the conditional predictions of two networks.

    source_logits, logits: (R, ..., V), the first row being the conditional one.  targets: (...), negative if
    no code follows.
    """
    before, after = _log_softmax(source_logits[0]), _log_softmax(logits[0])
    spoken = targets >= 0
    indices = np.maximum(targets, 0)[..., None].astype(np.int64)
    entropies = [
        float(-np.take_along_axis(side, indices, -1)[..., 0][spoken].mean()) if spoken.any() else 0.0
        for side in (before, after)
    ]
    return Loss(
        int(before[..., 0].size),
        float((before.argmax(-1) == after.argmax(-1)).mean()),
        float((np.exp(before) * (before - after)).sum(-1).mean()),
        int(spoken.sum()),
        *entropies,
    )


def _pieces(
    source: ModelPart, destination: ModelPart, name: str
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (before, after, allowed difference) in pieces of whole rows, (n, width) each."""
    before, after = source.read(name), destination.read(name)
    width = before.shape[-1]
    before, after = before.reshape(-1, width), after.reshape(-1, width)
    how = _quantization(destination, name)
    dtype = destination.stored_dtype(name)
    step = max(1, CHUNK // width)
    for start in range(0, len(before), step):
        piece = before[start : start + step]
        size = np.abs(piece).astype(np.float64)
        allowed = size * (ROUNDING[dtype] + ROUNDING["float32"]) + SMALLEST_STEP[dtype] / 2
        if how is not None:
            allowed = group_error(piece, how, destination.dtype)
        yield piece, after[start : start + step], allowed


def _quantization(part: ModelPart, name: str) -> Quantization | None:
    from converters.rules.dequantize import Quantization

    if part.quantization is None or len(part.moves[name].sources) == 1:
        return None
    return Quantization.read(part.quantization, name.removesuffix(".weight"))


def group_error(values: np.ndarray, how: Quantization, dtype: str) -> np.ndarray:
    """Bound the change of a number by quantization from its group's span. (n, width) → same.

    dtype: of scales and biases, unless the format fixes them.
    """
    groups = values.astype(np.float64).reshape(len(values), -1, how.group_size)
    largest = np.abs(groups).max(-1, keepdims=True)
    if how.mode == "affine":  # two steps, and the rounding of scale (times a code) and bias
        step = np.ptp(groups, axis=-1, keepdims=True) / (2**how.bits - 1)
        allowed = 2 * step + 1.5 * EPS[dtype] * largest + 2**how.bits * SMALLEST_STEP[dtype]
    else:
        allowed = largest * SHARE[how.mode]
    return np.broadcast_to(allowed, groups.shape).reshape(values.shape)


def _by_module(title: str, kind: str, name: str) -> str:
    """Name of a tensor's module, up to the layer's number if the network's dtype can be chosen."""
    above = name.split(".")[:-1]
    numbers = [index for index, part in enumerate(above) if part.isdigit()]
    depth = min(numbers, default=len(above)) if models.network(kind).takes_dtype else 1
    return f"{title} {'.'.join(above[:depth])}"


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
