"""Conversion of a published checkpoint to a folder: planned completely, then written tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib import metadata
from math import prod
from pathlib import Path
from typing import Any

from converters.card import card_of
from converters.files.destination import appearing, check_destination, check_space, clear_leftovers
from converters.files.dtypes import FLOATS
from converters.files.writer import shard_names, shards, write_json
from converters.published import ModelPart, Published, open_published
from converters.rules.dequantize import Quantization
from converters.tensors import TensorOutput, import_mlx, output_of, write_tensors
from tts_core import models
from tts_core.config import FORMAT_VERSION, without_envelope
from tts_core.errors import UsageError
from tts_core.files.record import CARD, RECORD, Written
from tts_core.printable import one_line


@dataclass(frozen=True)
class PartOutline:
    """Outputs of one part. dtype: of the tensors that follow the requested one."""

    part: ModelPart
    dtype: str
    outputs: list[TensorOutput]
    quantization: Quantization | None  # None also if the part has no layers for it

    @property
    def kind(self) -> models.Network:
        """Facts of this kind of network."""
        return models.network(self.part.kind)

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(entry.nbytes for output in self.outputs for entry in output.entries)

    @property
    def parameters(self) -> int:
        """Number of parameters before quantization."""
        return sum(prod(self.part.shape(output.name)) for output in self.outputs)

    def quantization_entry(self) -> dict[str, Any] | None:
        """Build mlx-lm's entry of config.json: the general one, and false for each excepted layer."""
        if self.quantization is None:
            return None
        plain = [
            output.name
            for output in self.outputs
            if self.kind.is_large(output.name) and not output.quantization
        ]
        return self.quantization.to_dict() | {name.removesuffix(".weight"): False for name in plain}

    def config(self) -> dict[str, Any]:
        """Build the contents of config.json."""
        own, kind = self.part.published, self.part.kind
        if own is not None and self.kind.is_copied:
            return dict(own)
        config = self.part.config.to_dict() if own is None else without_envelope(own)
        config |= {
            "model_type": kind if own is None else self.kind.published_type,
            "weights_layout": "mlx",
            "format_version": FORMAT_VERSION,
            "dtype": self.dtype,
        }
        if self.quantization is not None:
            entry = self.quantization_entry()
            config |= {"quantization": entry, "quantization_config": entry}
        return config

    def report(self) -> dict[str, Any]:
        """Report counts, sizes and dropped tensors as JSON values."""
        part = self.part
        return {
            "map": part.layout,
            "source": one_line(part.origin.repository or part.origin.path.resolve().name),
            "commit": part.origin.commit,
            "files": [one_line(file.name) for file in part.files],
            "source_dtype": part.dtype,
            "source_tensors": len(part.checkpoint.shapes),
            "dtype": self.dtype,
            "tensors": len(self.outputs),
            "parameters": self.parameters,
            "quantized_layers": sum(output.quantization is not None for output in self.outputs),
            "quantization": self.quantization_entry(),
            "bytes": self.nbytes,
            "documents": sorted(part.documents),
            "dropped": dict(part.dropped),
        }


@dataclass(frozen=True)
class Outline:
    """Everything that a conversion writes, known before a tensor is read; the root comes first."""

    parts: list[PartOutline]
    quantization: Quantization | None

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(part.nbytes for part in self.parts)

    @property
    def dtype(self) -> str:
        """Dtype of the root's tensors."""
        return self.parts[0].dtype

    def files(self) -> list[str]:
        """List the files that the folder will have, by their paths in it."""
        found = [CARD, RECORD]
        for part in self.parts:
            names = shard_names(len(shards([output.entries for output in part.outputs])))
            names += ["config.json", "model.safetensors.index.json", *part.part.documents]
            found += [f"{part.part.folder}/{name}".lstrip("/") for name in names]
        return sorted(found)

    def report(self) -> dict[str, Any]:
        """Report counts, sizes and dropped tensors as JSON values."""
        how = self.quantization
        return {
            "bytes": self.nbytes,
            "dtype": self.dtype,
            "quantization": how and how.to_dict() | ({"numbers": "the original's"} if how.original else {}),
            "parts": {part.part.kind: part.report() for part in self.parts},
        }


def outline(
    published: Published, *, dtype: str | None = None, quantization: Quantization | None = None
) -> Outline:
    """Plan everything that `convert` writes.

    dtype: None keeps that of each source; tensors that their spec keeps in float32 stay so.
    Raises CheckpointError for parts that do not belong together; UsageError if the source is already
    quantized, or if no layer can be quantized.
    """
    parts = list(published.parts.values())
    published.check_fits()
    if dtype is not None and (dtype not in FLOATS or dtype == "float64"):
        raise UsageError(f"--dtype: {dtype!r} is unknown; choose from float32, bfloat16, float16")
    if quantization is not None and any(part.quantization for part in parts):
        raise UsageError(f"-q: {parts[0].origin.path} is already quantized; give the unquantized model")
    if quantization is not None and quantization.original:
        _check_original(parts, dtype)
    outlines = [_part_outline(part, dtype, quantization) for part in parts]
    if quantization and not any(output.quantization for part in outlines for output in part.outputs):
        raise UsageError(
            f"-q: no layer of {parts[0].origin.path} has a width that is a multiple of "
            f"{quantization.group_size}; choose another --q-group-size or --q-mode"
        )
    return Outline(outlines, quantization)


def _check_original(parts: Sequence[ModelPart], dtype: str | None) -> None:
    """Raise UsageError if the original's own quantization does not apply."""
    first = next((part for part in parts if models.network(part.kind).original_modes), None)
    if first is None:
        raise UsageError(
            f"--q-mode: {_owners()}, and {parts[0].origin.path} is {_title(parts[0])}; choose affine"
        )
    if (dtype or first.dtype) == "float16":
        raise UsageError(
            "--q-mode: scales of int8 and int4 are bfloat16; choose --dtype bfloat16 or float32, or affine"
        )


def _owners() -> str:
    """List the models with a quantization of their own, and the networks that it applies to."""
    networks = [(models.MODELS[name].title, models.MODELS[name].networks.values()) for name in models.NAMES]
    own = [(title, kind) for title, kinds in networks for kind in kinds if kind.original_modes]
    return ", ".join(
        f"{' and '.join(item.original_modes)} are {title}'s own, of {item.title}" for title, item in own
    )


def _title(part: ModelPart) -> str:
    return models.network(part.kind).title


def _part_outline(part: ModelPart, dtype: str | None, quantization: Quantization | None) -> PartOutline:
    kind, part = models.network(part.kind), part.as_published()
    chosen = (dtype or part.dtype) if kind.takes_dtype else "float32"
    outputs = [output_of(part, name, FLOATS[chosen], quantization) for name in part.names()]
    has_layers = any(kind.is_large(name) for name in part.names())
    return PartOutline(part, chosen, outputs, quantization if has_layers else None)


def convert(
    published: Published,
    destination: str | Path,
    *,
    dtype: str | None = None,
    quantization: Quantization | None = None,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Write a converted folder and return the contents of its conversion.json.

    progress: called with the bytes written since its last call. force: replace an older converted folder,
    which stays until the new one is complete. Peak memory is a few times the largest tensor.
    Before the folder appears, it is opened strictly.
    Raises UsageError, ResourceError or CheckpointError; no incomplete folder remains in any case.
    """
    whole = outline(published, dtype=dtype, quantization=quantization)
    return write(published, whole, destination, force=force, progress=progress)


def write(
    published: Published,
    whole: Outline,
    destination: str | Path,
    *,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
    repository: str | None = None,
) -> dict[str, Any]:
    """Write the folder of an outline of these parts; arguments and errors are those of `convert`.

    repository: hub id that the model card names.
    """
    destination, quantization = Path(destination), whole.quantization
    files = [file for part in whole.parts for file in part.part.files]
    if quantization is not None and not quantization.original:
        import_mlx()
    clear_leftovers(destination.absolute().parent)
    check_destination(destination, force=force, sources=files)
    check_space(destination.absolute().parent, whole.nbytes)
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(1)  # hashes files meanwhile
        stack.callback(pool.shutdown, cancel_futures=True)
        sources = {file: pool.submit(Written.of, file) for file in dict.fromkeys(files)}
        folder = stack.enter_context(appearing(destination, replace=force))
        for part in whole.parts:
            _write_part(part, folder / part.part.folder, progress or (lambda _: None))
        report = whole.report() | {
            "tool": "mlx-port",
            "version": version(),
            "ignored_files": dict(published.ignored),
        }
        for part in whole.parts:
            report["parts"][part.part.kind]["files"] = [
                {"name": one_line(file.name), **asdict(sources[file].result())} for file in part.part.files
            ]
        for part in whole.parts:
            part.part.check_unchanged()
        card = card_of(published, whole.dtype, quantization, report["version"], repository)
        (folder / CARD).write_text(card, "utf-8")
        output = sorted(path for path in folder.rglob("*") if path.is_file())
        report["written"] = {
            path.relative_to(folder).as_posix(): asdict(written)
            for path, written in zip(output, pool.map(Written.of, output), strict=True)
        }
        write_json(folder / RECORD, report)
        # strictly: tensors and configuration must fit
        open_published(folder, offline=True, parts=list(published.parts))
    return report


def _write_part(outline: PartOutline, folder: Path, progress: Callable[[int], object]) -> None:
    """Write a part's files."""
    part, outputs = outline.part, outline.outputs
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", outline.config(), sort=part.published is None)
    for name, text in part.documents.items():
        (folder / name).write_text(text, "utf-8", newline="")
    files = shards([output.entries for output in outputs])
    named = dict(zip(shard_names(len(files)), files, strict=True))
    write_tensors(part, outputs, {folder / name: entries for name, entries in named.items()}, progress)
    index = {
        "metadata": {
            "total_size": sum(entry.nbytes for entries in files for entry in entries),
            "total_parameters": outline.parameters,
        },
        "weight_map": {entry.name: name for name, entries in named.items() for entry in entries},
    }
    write_json(folder / "model.safetensors.index.json", index)


def version() -> str:
    """Return the version of this package."""
    try:
        return metadata.version("mlx-port")
    except metadata.PackageNotFoundError:
        return "unknown"
