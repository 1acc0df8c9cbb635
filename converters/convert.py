"""A published checkpoint into a converted folder: planned completely, then written tensor by tensor."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from converters.dequantize import Quantization
from converters.dtypes import FLOATS, narrow
from converters.published import Part, Published, open_published
from converters.writer import (
    Entry,
    SafetensorsWriter,
    appearing,
    check_destination,
    check_space,
    shard_names,
    shards,
    write_json,
)
from tts_core.converted import FORMAT_VERSION
from tts_core.dac import DacConfig, check_fits, mlx_axes
from tts_core.dia import DiaConfig
from tts_core.dia_shapes import is_norm
from tts_core.errors import CheckpointError, UsageError

# the large linear layers: what a decoding step reads. Embeddings stay, as a step reads single rows of them
_LARGE = re.compile(r"(\w_proj|logits_dense)\.weight")


@dataclass(frozen=True)
class Output:
    """One canonical tensor and what it becomes: one entry, or weight, scales (and biases) where quantised."""

    name: str
    entries: list[Entry]
    quantization: Quantization | None = None


@dataclass(frozen=True)
class Outline:
    """Everything that a conversion will write, known before a tensor is read."""

    dia: Part[DiaConfig]
    codec: Part[DacConfig]
    dtype: str
    quantization: Quantization | None
    outputs: Mapping[str, list[Output]]  # by kind
    unquantized: list[str]  # large linear layers that cannot be split into groups

    @property
    def nbytes(self) -> int:
        """Of all tensors."""
        return sum(
            entry.nbytes
            for outputs in self.outputs.values()
            for output in outputs
            for entry in output.entries
        )

    @property
    def parts(self) -> tuple[Part[Any], ...]:
        """The networks, in the order in which they are written."""
        return self.dia, self.codec

    def report(self) -> dict[str, Any]:
        """Counts, sizes and what is left behind, as JSON can hold it."""
        return {
            "bytes": self.nbytes,
            "dtype": self.dtype,
            "quantization": self._quantization(),
            "parts": {part.kind: self._part(part) for part in self.parts},
        }

    def _part(self, part: Part) -> dict[str, Any]:
        outputs = self.outputs[part.kind]
        return {
            "map": part.layout,
            "source": part.origin.repository or part.origin.path.resolve().name,
            "commit": part.origin.commit,
            "files": [file.name for file in part.files],
            "source_dtype": part.dtype,
            "source_tensors": len(part.checkpoint.shapes),
            "tensors": len(outputs),
            "parameters": sum(int(np.prod(part.shape(output.name))) for output in outputs),
            "quantized_layers": sum(output.quantization is not None for output in outputs),
            "bytes": sum(entry.nbytes for output in outputs for entry in output.entries),
            "dropped": dict(part.dropped),
        }

    def _quantization(self) -> dict[str, Any] | None:
        """As mlx-lm's config.json: the general entry, and false for each layer that is an exception."""
        if self.quantization is None:
            return None
        return self.quantization.to_dict() | {
            name.removesuffix(".weight"): False for name in self.unquantized
        }

    def config(self, part: Part) -> dict[str, Any]:
        """config.json of a part."""
        config = part.config.to_dict() | {
            "model_type": part.kind,
            "weights_layout": "mlx",
            "format_version": FORMAT_VERSION,
            "dtype": self.dtype if part.kind == "dia" else "float32",
        }
        if part.kind == "dia" and self.quantization is not None:
            config |= {"quantization": self._quantization(), "quantization_config": self._quantization()}
        return config


def outline(
    published: Published, *, dtype: str | None = None, quantization: Quantization | None = None
) -> Outline:
    """What `convert` would write. dtype None keeps that of Dia's source; norms and the codec stay float32.

    Raises CheckpointError for a codec of another model, UsageError when a quantised source should be
    quantised again, or when no layer can be quantised.
    """
    dia, codec = published.dia, published.codec
    check_fits(codec.config, dia.config.decoder_config.num_channels, dia.config.eos_token_id)
    if dtype is not None and (dtype not in FLOATS or dtype == "float64"):
        raise UsageError(f"--dtype: {dtype!r} is unknown; choose from float32, bfloat16, float16")
    if quantization is not None and dia.quantization is not None:
        raise UsageError(f"-q: {dia.origin.path} is quantised already; give the unquantised model")
    code = FLOATS[dtype or dia.dtype]
    outputs = [_output(dia, name, code, quantization) for name in dia.names()]
    unquantized = [
        output.name
        for output in outputs
        if quantization and _is_large(output.name) and not output.quantization
    ]
    if quantization and not any(output.quantization for output in outputs):
        raise UsageError(
            f"-q: no layer of {dia.origin.path} has a width that divides by {quantization.group_size}; "
            "choose another --q-group-size or --q-mode"
        )
    plain = [_output(codec, name, "F32", None) for name in codec.names()]
    return Outline(dia, codec, dtype or dia.dtype, quantization, {"dia": outputs, "dac": plain}, unquantized)


def convert(
    published: Published,
    destination: str | Path,
    *,
    dtype: str | None = None,
    quantization: Quantization | None = None,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Write a converted folder and return what its conversion.json says.

    progress: called with the bytes written since its last call. force: replaces an older converted folder,
    which stays until the new one is complete. Peak memory is a few times the largest tensor.
    Raises UsageError, ResourceError or CheckpointError; whatever happens, nothing half-written stays behind.
    """
    whole = outline(published, dtype=dtype, quantization=quantization)
    destination = Path(destination)
    files = [file for part in whole.parts for file in part.files]
    if quantization is not None:
        _mlx()
    check_destination(destination, force=force, sources=files)
    check_space(destination.absolute().parent, whole.nbytes)
    with _Hashes(files) as hashes, appearing(destination, replace=force) as folder:
        for part in whole.parts:
            _write_part(
                whole, part, folder if part.kind == "dia" else folder / "codec", progress or (lambda _: None)
            )
        open_published(folder, offline=True)  # a strict reload: what was written fits its own configuration
        report = whole.report() | {
            "tool": "mlx-port",
            "version": _version(),
            "ignored_files": dict(published.ignored),
        }
        for part in whole.parts:
            report["parts"][part.kind]["files"] = [
                {"name": file.name, "bytes": file.stat().st_size, "sha256": hashes.of(file)}
                for file in part.files
            ]
        write_json(folder / "conversion.json", report)
        (folder / "README.md").write_text(_card(whole), "utf-8")
    return report


def _write_part(whole: Outline, part: Part, folder: Path, progress: Callable[[int], object]) -> None:
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", whole.config(part))
    outputs = whole.outputs[part.kind]
    files = shards([output.entries for output in outputs])
    names = shard_names(len(files))
    waiting = iter(outputs)
    for entries, name in zip(files, names, strict=True):
        writer = SafetensorsWriter(folder / name, entries)
        left = len(entries)
        try:
            while left:
                output = next(waiting)
                for entry, tensor in zip(output.entries, _tensors(part, output), strict=True):
                    writer.write(entry.name, tensor)
                    progress(entry.nbytes)
                    left -= 1
            writer.close()
        finally:
            writer.abort()
    index = {
        "metadata": {
            "total_size": sum(entry.nbytes for entries in files for entry in entries),
            "total_parameters": sum(int(np.prod(part.shape(output.name))) for output in outputs),
        },
        "weight_map": {
            entry.name: name for entries, name in zip(files, names, strict=True) for entry in entries
        },
    }
    write_json(folder / "model.safetensors.index.json", index)


def _output(part: Part, name: str, code: str, quantization: Quantization | None) -> Output:
    shape = part.shape(name)
    if part.kind == "dac":
        axes = mlx_axes(name, len(shape))
        return Output(name, [Entry(name, "F32", tuple(shape[axis] for axis in axes) if axes else shape)])
    if is_norm(name):
        return Output(name, [Entry(name, "F32", shape)])
    if quantization is None or not _is_large(name) or shape[-1] % quantization.group_size:
        return Output(name, [Entry(name, code, shape)])
    layer, (rows, columns) = name.removesuffix(".weight"), shape
    groups = (rows, columns // quantization.group_size)
    scale = code if quantization.has_biases else "U8"
    entries = [
        Entry(name, "U32", (rows, columns * quantization.bits // 32)),
        Entry(f"{layer}.scales", scale, groups),
        *[Entry(f"{layer}.biases", scale, groups)] * quantization.has_biases,
    ]
    return Output(name, entries, quantization)


def _is_large(name: str) -> bool:
    return bool(_LARGE.search(name))


def _tensors(part: Part, output: Output) -> Iterator[np.ndarray]:
    """The stored arrays of one output, in the order of its entries."""
    values = part.read(output.name)
    axes = mlx_axes(output.name, values.ndim) if part.kind == "dac" else None
    code = output.entries[-1].dtype
    if not np.isfinite(values).all():
        raise CheckpointError(
            f"{part.files[0]}: {output.name} holds NaN or infinite numbers; the checkpoint is damaged"
        )
    if output.quantization is not None:
        yield from _quantized(values, code, output.quantization)
        return
    stored = narrow(values.transpose(axes) if axes else values, code)
    if code == "F16" and np.isinf(stored).any():
        raise CheckpointError(
            f"{part.files[0]}: {output.name} does not fit in float16; choose --dtype bfloat16"
        )
    yield stored


def _mlx() -> Any:
    try:
        import mlx.core as mx
    except ImportError:
        raise UsageError("-q: quantising needs MLX; on Linux: pip install 'mlx-port[cpu]'") from None
    return mx


def _quantized(values: np.ndarray, scale_code: str, how: Quantization) -> Iterator[np.ndarray]:
    mx = _mlx()
    weight = mx.array(values)
    if scale_code in ("F16", "BF16"):  # affine scales take the weight's type; the other modes round only once
        weight = weight.astype(mx.float16 if scale_code == "F16" else mx.bfloat16)
    made = mx.quantize(weight, group_size=how.group_size, bits=how.bits, mode=how.mode)
    for array in made:
        yield np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    del weight, made
    mx.clear_cache()


class _Hashes:
    """sha256 of files, in a thread beside the conversion; leaving the block early stops it."""

    def __init__(self, files: Sequence[Path]):
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._futures = {file: self._pool.submit(self._hash, file) for file in files}

    def __enter__(self) -> _Hashes:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def of(self, file: Path) -> str:
        return self._futures[file].result()

    def _hash(self, path: Path) -> str:
        digest, piece = hashlib.sha256(), bytearray(2**20)
        with open(path, "rb", buffering=0) as file:
            while (count := file.readinto(piece)) and not self._stop.is_set():
                digest.update(memoryview(piece)[:count])
        return digest.hexdigest()


def _version() -> str:
    try:
        return metadata.version("mlx-port")
    except metadata.PackageNotFoundError:
        return "unknown"


def _card(whole: Outline) -> str:
    """The model card, README.md: front matter for the hub, then what it is and where it came from."""
    dia = whole.dia
    lines = [
        "---",
        "library_name: mlx",
        "pipeline_tag: text-to-speech",
        "tags:",
        "- mlx",
        "- text-to-speech",
        "- dia",
    ]
    license = _license(dia)
    lines += [f"license: {license}"] * bool(license)
    lines += [f"base_model: {dia.origin.repository}"] * bool(dia.origin.repository)
    name = dia.origin.repository or dia.origin.path.resolve().name
    how = whole.quantization
    form = (
        f"{how.mode}, {how.bits} bits, groups of {how.group_size}; the rest {whole.dtype}"
        if how
        else whole.dtype
    )
    lines += [
        "---",
        "",
        f"# {name} for MLX",
        "",
        f"Dia ({dia.config.generation} rules) with its codec, converted by mlx-port {_version()}. "
        f"Weights: {form}; norms and codec float32.",
        "Sources, their hashes, the maps used and what was dropped: conversion.json.",
        "",
        "```python",
        "import mlx_port",
        "",
        'model = mlx_port.load("path/of/this/folder")',
        'result = model.generate("[S1] Hello there. [S2] Hi!")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _license(part: Part) -> str | None:
    """What the source's own card says, where the source is a folder that has one."""
    card = part.files[0].parent / "README.md"
    if not card.is_file():
        return None
    front = card.read_text("utf-8", errors="replace").split("---")
    found = re.search(r"^license: *([\w.-]+) *$", front[1], re.MULTILINE) if len(front) > 2 else None
    return found[1] if found else None
