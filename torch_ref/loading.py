"""Load published checkpoints and converted folders into PyTorch networks."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, cast, overload

import numpy as np
import torch
from torch import nn

from converters.published import Part, Published, open_published
from torch_ref.cuda.precision import Precision as CodecPrecision
from torch_ref.cuda.precision import Rounded, choose_precision
from torch_ref.device import (
    Precision,
    backend_name,
    choose,
    choose_device,
    choose_dtype,
    free_bytes,
    name_of,
)
from tts_core import models
from tts_core.errors import UsageError
from tts_core.memory.machine import Machine
from tts_core.pipeline import Pipeline, check_model

if TYPE_CHECKING:
    from torch_ref.dia.pipeline import DiaPipeline
    from torch_ref.dia2.pipeline import Dia2Pipeline
    from torch_ref.mars5.pipeline import Mars5Pipeline
    from torch_ref.metavoice.pipeline import MetaVoicePipeline
    from torch_ref.qwen3.pipeline import Qwen3Pipeline

Network = TypeVar("Network", bound=nn.Module)
Made = TypeVar("Made")


class Parts:
    """The parts of a model, opened and checked; a network's weights are read by `network`.

    model: one of tts_core.models.NAMES, None for single parts.
    configs: kind → configuration.
    documents: kind → name → text.
    dtype, device: of the networks.
    codec_precision: of codecs' decoders.
    """

    def __init__(self, published: Published, precision: Precision, codec_precision: CodecPrecision):
        self.model = published.model
        self.configs = {kind: part.config for kind, part in published.parts.items()}
        self.documents = {kind: part.documents for kind, part in published.parts.items()}
        self.device, self.dtype = self.precision = precision
        self.codec_precision: CodecPrecision = codec_precision
        self._parts = published.parts
        published.check_fits()

    def machine(self) -> Machine:
        """Describe the device and the model's own networks for a memory plan, with what is free now."""
        return Machine(name_of(self.dtype), backend_name(self.device), free_bytes(self.device))

    def network(self, kind: str, cls: type[Made]) -> Made:
        """Load the network of a kind with its weights, or with a reader of them if it loads in pieces.

        cls: its class, the one that the spec names.
        """
        network = self._network(kind)
        if not isinstance(network, cls):
            raise TypeError(f"{kind}: expected a {cls.__name__}, found a {type(network).__name__}")
        return network

    def _network(self, kind: str) -> object:
        made, pieces = models.network_class("torch_ref", kind), models.network(kind).pieces
        if pieces is not None:
            return made(self.configs[kind], lambda piece: self.tensors(kind, pieces.format(piece)))
        with torch.device("meta"):
            network = made(self.configs[kind])
        if isinstance(network, Rounded):
            network.precision = self.codec_precision
        return _fill(network, self._parts[kind], self.dtype, self.device)

    def tensors(self, kind: str, prefix: str) -> dict[str, torch.Tensor]:
        """Read the tensors of a part whose names start with `prefix`, by the rest of their names."""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in _read(self._parts[kind], self.precision, prefix)
        }


class How(TypedDict, total=False):
    """The arguments of `load` beside the path and the model."""

    dtype: str | None
    device: str | None
    codec: str | Path | None
    codec_precision: str | None
    cross_rope: bool | None
    config: str | Path | None
    include: Sequence[str]


@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["dia"], **how: Unpack[How]
) -> DiaPipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["dia2"], **how: Unpack[How]
) -> Dia2Pipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["mars5"], **how: Unpack[How]
) -> Mars5Pipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["metavoice"], **how: Unpack[How]
) -> MetaVoicePipeline: ...
@overload
def load(
    path: str | Path | Sequence[str | Path], *, model: Literal["qwen3"], **how: Unpack[How]
) -> Qwen3Pipeline: ...
@overload
def load(path: str | Path | Sequence[str | Path], *, model: None = None, **how: Unpack[How]) -> Pipeline: ...
def load(
    path: str | Path | Sequence[str | Path],
    *,
    model: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    codec: str | Path | None = None,
    codec_precision: str | None = None,
    cross_rope: bool | None = None,
    config: str | Path | None = None,
    include: Sequence[str] = (),
) -> Pipeline:
    """Load the pipeline of the model in the files.

    path: folder or file in any published layout, a hub id, or a folder that convert-weights wrote, quantized
    ones included (they are dequantized); a list of them if a model's parts are in several places.
    model: its name, as "dia" or "qwen3", which types its options; None is whatever is there.
    dtype: float32, bfloat16, float16 or float64, for the networks; norms and networks that always run in
    float32 (codecs, vocoders) stay float32 (float64 in float64). None is float32 on the CPU; on CUDA
    bfloat16, or float16 if bfloat16 is only emulated; on MPS the default in the model's spec.
    device: None is CUDA, MPS or the CPU, the first available. The choice and its reason are logged.
    codec: folder, file or hub id of the codec, if `path` does not contain it.
    codec_precision: of codecs' decoders on CUDA: float32, tf32 or bfloat16; None is tf32 beside networks in
    half precision, else float32. Codes of recordings never depend on it.
    cross_rope: overrides the files' setting of rotary cross-attention.
    config: a JSON file with sizes that no tensor shows. include: optional parts to load: "mbd".
    Raises NotFoundError, CheckpointError, UsageError (also for another model than `model`), and ResourceError
    for too little memory.
    """
    models.check_name(model)
    parts = open_parts(
        path,
        dtype=dtype,
        device=device,
        codec=codec,
        codec_precision=codec_precision,
        cross_rope=cross_rope,
        config=config,
        include=include,
    )
    if model is not None:
        check_model(parts.model, model)
    return assemble(parts)


def assemble(parts: Parts) -> Pipeline:
    """Build the pipeline of opened parts; this reads their weights.

    Raises CheckpointError for weights that do not fit, and ResourceError where memory would not hold them.
    """
    return importlib.import_module(f"torch_ref.{parts.model}.pipeline").assemble(parts)


class Loaded:
    """A pipeline that is loaded from published or converted files of one model."""

    MODEL: str  # one of tts_core.models.NAMES

    @classmethod
    def load(cls, path: str | Path | Sequence[str | Path], **how: Unpack[How]) -> Self:
        """Load the pipeline; arguments and errors as in `torch_ref.load`.

        Raises UsageError for files of another model.
        """
        parts = open_parts(path, **how)
        check_model(parts.model, cls.MODEL)
        return cast(Self, assemble(parts))


def open_parts(
    path: str | Path | Sequence[str | Path],
    *,
    dtype: str | None = None,
    device: str | None = None,
    codec: str | Path | None = None,
    codec_precision: str | None = None,
    cross_rope: bool | None = None,
    config: str | Path | None = None,
    include: Sequence[str] = (),
    kinds: Sequence[str] | None = None,
) -> Parts:
    """Open the parts that `load` assembles, without reading tensors. kinds: parts to open; None for all."""
    choose_dtype(dtype, choose_device(device))  # before opening any file
    choose_precision(codec_precision, choose_device(device))
    if not isinstance(path, str | Path | Sequence):
        raise UsageError(f"model: {path!r} is not a path; give a folder, a file or a hub id")
    published = open_published(
        path, codec=codec, cross_rope=cross_rope, config=config, include=include, parts=kinds
    )
    chosen = choose(device, dtype, published.model)
    return Parts(published, chosen, choose_precision(codec_precision, *chosen))


def open_networks(
    path: str | Path | Sequence[str | Path],
    *,
    kinds: Sequence[str] | None = None,
    dtype: str | None = None,
    device: str | None = None,
    config: str | Path | None = None,
) -> dict[str, Any]:
    """Load networks by kind, without a pipeline; arguments as in `open_parts`. Codecs are exact."""
    parts = open_parts(
        path, dtype=dtype, device=device, codec_precision="float32", config=config, kinds=kinds
    )
    return {kind: parts.network(kind, object) for kind in parts.configs}


def _fill(network: Network, part: Part, dtype: torch.dtype, device: torch.device) -> Network:
    """Load a part's tensors into an empty network, one at a time; the plan has checked names and shapes."""
    state = dict(_read(part, Precision(device, dtype)))
    network.load_state_dict(state, strict=True, assign=True)
    return network.to(device).eval()


def _read(part: Part, precision: Precision, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name in part.names():
        if name.startswith(prefix):
            dtype = precision.wide if part.stays_float32(name) else precision.dtype
            yield name, _tensor(part.read(name)).to(precision.device, dtype)


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array if array.flags.writeable else array.copy())
