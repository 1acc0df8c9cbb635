"""Load folders that convert-weights wrote into MLX networks."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, Unpack, cast

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.from_hub import local_folder
from mlx_port.kernels.row_paths import forced
from mlx_port.runtime.arithmetic import arithmetic, described
from mlx_port.runtime.memory import backend_name, bound_cache, free_bytes, wants_wired, wire
from mlx_port.runtime.switches import check_switches
from mlx_port.stored import (
    cast_floats,
    dequantize_others,
    quantize_linears,
    read_config,
    read_tensors,
    understood,
)
from mlx_port.stored_published import Mapped, open_conversion, open_copied, read_whole, stored_in
from tts_core import models
from tts_core.errors import CheckpointError, NotFoundError, UsageError
from tts_core.files.record import RECORD, Record
from tts_core.files.regular import read_text
from tts_core.memory.machine import Machine
from tts_core.pipeline import check_model
from tts_core.shapes import mlx_axes

if TYPE_CHECKING:
    from converters.published import Published
    from tts_core.speaking.pipeline import Pipeline

_LOG = logging.getLogger("mlx_port")
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


class Parts:
    """The parts of a model, opened and checked; a network's weights are read by `network`.

    model: one of tts_core.models.NAMES, None for single parts.
    configs: kind → configuration.
    documents: kind → name → text.
    dtype: of the networks, by name; None is each part's own.
    codec_precision: of codecs' decoders.
    """

    codec_precision = "float32"  # MLX has no such switch

    def __init__(
        self,
        model: str | None,
        folder: Path,
        kinds: Sequence[str],
        dtype: str | None,
        root: dict[str, Any] | None = None,  # the model's config.json, where it is read already
    ):
        self.model, self.folder, self.dtype = model, folder, dtype
        read = {} if root is None else {str(model): root}
        self._raw = {kind: read.get(kind) or read_config(self.folder_of(kind), kind) for kind in kinds}
        self.configs = {
            kind: understood(models.network(kind).read_converted, raw, self.folder_of(kind))
            for kind, raw in self._raw.items()
        }
        self.record = Record.read(folder)
        self._files = {kind: self.record.weights(self._folder(kind)) for kind in kinds}
        self.documents = {
            kind: {name: _document(self.folder_of(kind) / name) for name in self._names(kind)}
            for kind in kinds
        }
        if model is not None:
            understood(lambda _: models.check_fits(model, self.configs, self.documents), {}, folder)

    def folder_of(self, kind: str) -> Path:
        """Return the folder of a part."""
        return self.folder / self._folder(kind)

    def _folder(self, kind: str) -> str:
        return models.network(kind).folder_in(self.folder)

    def _names(self, kind: str) -> tuple[str, ...]:
        known = models.network(kind)
        return (*known.documents, *known.optional_in(self.folder_of(kind)))

    def dtype_of(self, kind: str) -> str:
        """Return the dtype of a part's network, by name."""
        own = self._raw[kind].get("dtype")
        return self.dtype if self.dtype is not None and models.network(kind).takes_dtype else str(own)

    def quantization_of(self, kind: str) -> dict[str, Any] | None:
        """Return the quantization of a part as in its config.json; None if it is not quantized."""
        return self._raw[kind].get("quantization")

    def machine(self) -> Machine:
        """Describe the device and the model's own networks for a memory plan, with what is free now."""
        kind = str(self.model)
        return Machine(self.dtype_of(kind), backend_name(), free_bytes(), self.quantization_of(kind))

    def network(self, kind: str) -> Any:
        """Load the network of a kind with its weights, or with a reader of them if it loads in pieces."""
        made, pieces = models.network_class("mlx_port", kind), models.network(kind).pieces
        if pieces is not None:
            self._check_tensors(kind)
            return made(self.configs[kind], lambda piece: self.tensors(kind, pieces.format(piece)))
        network = made(self.configs[kind])
        weights, how = self._read(kind), self.quantization_of(kind)
        if how:
            understood(lambda _: quantize_linears(network, how, weights), {}, self.folder_of(kind))
            weights = dequantize_others(network, weights, how)
        _fill(network, weights, self.folder_of(kind), kind, self._dtype())
        return network

    def tensors(self, kind: str, prefix: str) -> dict[str, mx.array]:
        """Read the tensors of a part whose names start with `prefix`, by the rest of their names."""
        return {
            name.removeprefix(prefix): cast_floats(name, value, self._dtype(), kind)
            for name, value in self._read(kind).items()
            if name.startswith(prefix)
        }

    def check(self) -> None:
        """Raise CheckpointError if a file of the parts changed since the conversion, by its sha256."""
        self.record.check([self._folder(kind) for kind in self.configs])

    def _check_tensors(self, kind: str) -> None:
        """Check names and shapes of a part that is never loaded as a whole network."""
        wanted = {}
        for name, shape in models.network(kind).parameter_shapes(self.configs[kind]).items():
            axes = mlx_axes(shape) or range(len(shape))
            wanted[name] = f"float {tuple(shape[axis] for axis in axes)}"
        _check(self._read(kind), wanted, self.folder_of(kind))

    def _read(self, kind: str) -> dict[str, mx.array]:
        """Open all tensors of a part; MLX reads their data on first use."""
        if models.network(kind).is_copied and "weights_layout" not in self._raw[kind]:
            return read_whole(Mapped(open_copied(self.folder_of(kind), kind)))
        weights: dict[str, mx.array] = {}
        for file in self._files[kind]:
            held = read_tensors(file)
            twice = sorted(held.keys() & weights.keys())
            if twice:
                raise CheckpointError(f"model: {file}: {twice[0]} is in another file, too; convert again")
            weights |= held
        return weights

    def _dtype(self) -> mx.Dtype | None:
        return None if self.dtype is None else DTYPES[self.dtype]


class _ConversionParts(Parts):
    """The parts of an MLX conversion that another program wrote."""

    def __init__(self, found: Published, folder: Path, dtype: str | None):
        self.model, self.folder, self.dtype = found.model, folder, dtype
        self._parts = found.parts
        self._raw = {
            kind: {"dtype": part.dtype, "quantization": part.quantization}
            for kind, part in found.parts.items()
        }
        self.configs = {kind: part.config for kind, part in found.parts.items()}
        self.documents = {kind: part.documents for kind, part in found.parts.items()}

    def check(self) -> None:
        """Raise UsageError: it has no record of its files."""
        raise UsageError(f"check: {self.folder} was not written by convert-weights and has no {RECORD}")

    def _read(self, kind: str) -> dict[str, mx.array]:
        return read_whole(stored_in(self._parts[kind]))


class How(TypedDict, total=False):
    """The arguments of `load` beside the path and the model."""

    dtype: Literal["float32", "bfloat16", "float16"] | None
    check: bool
    bits: int | None
    revision: str | None
    offline: bool


def assemble(parts: Parts) -> Pipeline:
    """Build the pipeline of opened parts; this reads their weights.

    Raises CheckpointError for weights that do not fit, and ResourceError where memory would not hold them.
    """
    bound_cache()
    model = models.MODELS[str(parts.model)]
    plan = model.code().plan
    understood(lambda _: plan.check_loading(parts.configs, parts.machine()), {}, parts.folder)
    networks, machine = {kind: parts.network(kind) for kind in model.loaded(parts.configs)}, parts.machine()
    pipeline = importlib.import_module(f"mlx_port.{model.name}.pipeline").compose(networks, parts.documents)
    pipeline.engine.fit(machine)
    wire()
    own = parts.dtype_of(str(parts.model))
    if parts.dtype is None and own != "float32" and backend_name() == "mlx-cpu":
        _LOG.warning("mlx: %s, as this folder is stored, is slow on a CPU; dtype float32 is faster", own)
    if arithmetic() != "float32":
        _LOG.warning("mlx: arithmetic of float32 products: %s", described())
    return pipeline


class Loaded:
    """A pipeline that is loaded from a folder of one model."""

    model: ClassVar[models.Model]

    @classmethod
    def load(cls, path: str | Path, **how: Unpack[How]) -> Self:
        """Load the pipeline; arguments and errors as in `mlx_port.load`.

        Raises UsageError for a folder of another model.
        """
        parts = open_parts(path, **how)
        check_model(parts.model, cls.model.name)
        return cast(Self, assemble(parts))


def open_parts(
    path: str | Path,
    *,
    dtype: str | None = None,
    kinds: Sequence[str] | None = None,
    check: bool = False,
    bits: int | None = None,
    revision: str | None = None,
    offline: bool = False,
) -> Parts:
    """Open the parts that `load` assembles, without reading tensors. kinds: parts to open; None for all."""
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype: {dtype!r} is not one of {', '.join(DTYPES)}")
    forced()  # refuses a bad choice before anything is read
    check_switches()
    wants_wired()
    if not isinstance(path, str | Path):
        raise UsageError(
            f"model: {path!r} is not a path; give a folder that convert-weights wrote, or a hub id"
        )
    folder = local_folder(path, dtype=dtype, bits=bits, revision=revision, offline=offline)
    if (found := open_conversion(folder, kinds)) is not None:
        parts = _ConversionParts(found, folder, dtype)
    elif kinds is not None:
        name = next((kind for kind in kinds if kind in models.NAMES), None)
        parts = Parts(name, folder, kinds, dtype)
    else:
        root = read_config(folder, *models.NAMES)
        name = root["model_type"]
        spec = models.MODELS[name]
        kinds = spec.wanted([kind for kind in spec.extras if (folder / models.network(kind).folder).is_dir()])
        parts = Parts(name, folder, kinds, dtype, root)
    if check:
        parts.check()
    return parts


def open_networks(
    path: str | Path, *, kinds: Sequence[str] | None = None, dtype: str | None = None
) -> dict[str, Any]:
    """Load networks by kind, without a pipeline; arguments as in `open_parts`."""
    parts = open_parts(path, dtype=dtype, kinds=kinds)
    return {kind: parts.network(kind) for kind in parts.configs}


def _document(file: Path) -> str:
    try:
        return read_text(file)  # line ends as they are
    except FileNotFoundError:
        raise NotFoundError(f"model: {file}: a part of the model, but it is missing; convert again") from None


def _fill(
    network: nn.Module, weights: dict[str, mx.array], folder: Path, kind: str, dtype: mx.Dtype | None
) -> None:
    """Load all tensors and empty `weights`; names and shapes must equal the network's."""
    parameters = cast(list[tuple[str, mx.array]], tree_flatten(network.parameters()))
    wanted = {name: _kind(value) for name, value in parameters}
    _check(weights, wanted, folder)
    ready: list[tuple[str, mx.array]] = []
    for name in wanted:  # one by one, so that only one array is in memory together with its cast
        ready.append((name, cast_floats(name, weights.pop(name), dtype, kind)))
        mx.eval(ready[-1][1])  # read the files now, not during the first generation
    network.load_weights(ready, strict=True)
    network.eval()


def _check(weights: Mapping[str, mx.array], wanted: Mapping[str, str], folder: Path) -> None:
    """Raise CheckpointError unless exactly the wanted tensors are present. wanted: name → `_kind`."""
    faults = [f"{name} missing" for name in wanted.keys() - weights.keys()]
    faults += [f"{name} unknown" for name in weights.keys() - wanted.keys()]
    faults += [
        f"{name} is {_kind(weights[name])}, expected {wanted[name]}"
        for name in wanted.keys() & weights.keys()
        if _kind(weights[name]) != wanted[name]
    ]
    if faults:
        raise CheckpointError(f"model: {folder}: {'; '.join(sorted(faults)[:20])}; convert again")


def _kind(value: mx.array) -> str:
    """Describe shape and type: any floating type is allowed in a checkpoint, others must be as expected."""
    return f"{'float' if mx.issubdtype(value.dtype, mx.floating) else value.dtype} {value.shape}"
