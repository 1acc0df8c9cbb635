"""Tensors of a conversion, made and written in threads."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.blocks import ScratchMemory, all_finite
from converters.files.dtypes import narrow
from converters.files.writer import SafetensorsWriter, TensorEntry
from converters.part import ModelPart
from converters.rules.dequantize import Quantization
from converters.rules.original_quant import stored as stored_original
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError
from tts_core.extras import install

LARGEST = 2**26  # numbers of a tensor that is made as a whole
MAKERS = 2  # threads, each with memory for one tensor; one takes longer than writing


@dataclass(frozen=True)
class TensorOutput:
    """Entries to write for one canonical tensor: one, or weight, scales (and biases) if quantized."""

    name: str
    entries: list[TensorEntry]
    quantization: Quantization | None = None


def output_of(part: ModelPart, name: str, code: str, quantization: Quantization | None) -> TensorOutput:
    """Plan the entries of one canonical tensor. code: safetensors name of its dtype."""
    kind, shape = models.network(part.kind), part.shape(name)
    axes = part.mlx_axes(name)
    stored = tuple(shape[axis] for axis in axes) if axes else shape
    if kind.stays_float32(name):
        return TensorOutput(name, [TensorEntry(name, "F32", stored)])
    if quantization is None or not kind.is_large(name) or shape[-1] % quantization.group_size:
        return TensorOutput(name, [TensorEntry(name, code, stored)])
    layer, (rows, columns) = name.removesuffix(".weight"), shape
    groups = (rows, columns // quantization.group_size)
    scale = code if quantization.has_biases else "U8"
    entries = [
        TensorEntry(name, "U32", (rows, columns * quantization.bits // 32)),
        TensorEntry(f"{layer}.scales", scale, groups),
        *[TensorEntry(f"{layer}.biases", scale, groups)] * quantization.has_biases,
    ]
    return TensorOutput(name, entries, quantization)


def write_tensors(
    part: ModelPart,
    outputs: Sequence[TensorOutput],
    files: Mapping[Path, Sequence[TensorEntry]],
    progress: Callable[[int], object],
) -> None:
    """Write the tensors of a part to new files.

    files: their entries, together those of `outputs`.  progress: called with the bytes written since its last
    call, from one thread at a time.
    """
    memory, writing = ScratchMemory(), threading.Lock()
    with ExitStack() as stack:
        writers: dict[str, SafetensorsWriter] = {}  # by tensor
        for path, entries in files.items():
            writer = SafetensorsWriter(path, entries)
            stack.callback(writer.abort)
            writers |= dict.fromkeys((entry.name for entry in entries), writer)

        def write_in_parts(output: TensorOutput) -> None:
            [entry] = output.entries
            with writing:
                writers[entry.name].fill(entry.name, _parts(part, output))
                progress(entry.nbytes)

        def write(output: TensorOutput) -> None:
            if _is_too_large(part, output):
                return write_in_parts(output)
            for entry, tensor in zip(output.entries, _made(part, output, memory), strict=True):
                with writing:
                    writers[entry.name].write(entry.name, tensor)
                    progress(entry.nbytes)

        quantized = any(output.quantization for output in outputs)  # MLX computes in one thread
        pool = ThreadPoolExecutor(1 if quantized else MAKERS)
        stack.callback(pool.shutdown, cancel_futures=True)
        for done in [pool.submit(write, output) for output in outputs]:
            done.result()
        for writer in set(writers.values()):
            writer.close()


def _is_too_large(part: ModelPart, output: TensorOutput) -> bool:
    """Return True for a copied tensor that is too large to be whole in memory."""
    is_permuted = part.mlx_axes(output.name) is not None
    return (
        math.prod(part.shape(output.name)) > LARGEST
        and part.is_copied(output.name)
        and not (is_permuted or output.quantization)
    )


def _parts(part: ModelPart, output: TensorOutput) -> Iterator[np.ndarray]:
    """Make the stored numbers of one output, some at a time; each is valid until the next."""
    [entry] = output.entries
    for values in part.blocks(output.name):
        yield _checked(part, output.name, values, entry.dtype)


def _made(part: ModelPart, output: TensorOutput, memory: ScratchMemory) -> list[np.ndarray]:
    """Make the stored arrays of one output, in the order of its entries; each is contiguous, and valid until
    the memory is used again.
    """
    values = part.read(output.name, memory)
    code = output.entries[-1].dtype
    if output.quantization is not None:
        _check_finite(part, output.name, values)
        make = stored_original if output.quantization.original else _quantized
        return list(make(values, code, output.quantization))
    return [np.ascontiguousarray(_checked(part, output.name, values, code, part.mlx_axes(output.name)))]


def _checked(
    part: ModelPart, name: str, values: np.ndarray, code: str, axes: Sequence[int] | None = None
) -> np.ndarray:
    """Cast numbers to their stored type. axes: order of the stored tensor; None is the same.

    Raises CheckpointError for NaN and infinite ones, and for ones that do not fit.
    """
    _check_finite(part, name, values)
    stored = narrow(values.transpose(axes) if axes else values, code)
    if code == "F16" and np.isinf(stored).any():
        raise CheckpointError(f"{part.files[0]}: {name} does not fit in float16; choose --dtype bfloat16")
    return stored


def _check_finite(part: ModelPart, name: str, values: np.ndarray) -> None:
    if not all_finite(values):
        raise CheckpointError(
            f"{part.files[0]}: {name} contains NaN or infinite numbers; the checkpoint is damaged"
        )


def import_mlx() -> Any:
    """Import MLX, which quantizes. Raises NotFoundError if it is not installed."""
    try:
        import mlx.core as mx
    except ImportError:
        raise NotFoundError(f"-q: quantization needs MLX; on Linux: {install('cpu')}") from None
    return mx


def _quantized(values: np.ndarray, scale_code: str, how: Quantization) -> Iterator[np.ndarray]:
    mx = import_mlx()
    weight = mx.array(values)
    if scale_code in ("F16", "BF16"):  # affine scales have the weight's dtype; the other modes round once
        weight = weight.astype(mx.float16 if scale_code == "F16" else mx.bfloat16)
    arrays = mx.quantize(weight, group_size=how.group_size, bits=how.bits, mode=how.mode)
    for array in arrays:
        yield np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    del weight, arrays
    mx.clear_cache()
