"""Load published checkpoints and converted folders into PyTorch networks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, TypeVar, Unpack, cast

import torch
from torch import nn

from converters.cache import Form, fetch_fitting
from converters.files.hub import is_hub_id
from converters.published import ModelPart, Published, open_published
from torch_ref.device import (
    Precision,
    backend_name,
    choose,
    choose_device,
    choose_dtype,
    free_bytes,
    name_of,
    tensor,
)
from torch_ref.limits.precision import Codec, choose_precision
from torch_ref.limits.precision import Precision as CodecPrecision
from tts_core import models
from tts_core.errors import UsageError
from tts_core.memory.machine import Machine
from tts_core.pipeline import check_model

if TYPE_CHECKING:
    from tts_core.speaking.pipeline import Pipeline

Network = TypeVar("Network", bound=nn.Module)


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
        return Machine(
            name_of(self.dtype),
            backend_name(self.device),
            free_bytes(self.device),
            codec_precision=self.codec_precision,
        )

    def network(self, kind: str) -> Any:
        """Load the network of a kind with its weights, or with a reader of them if it loads in pieces."""
        made, pieces = models.network_class("torch_ref", kind), models.network(kind).pieces
        if pieces is not None:
            return made(self.configs[kind], lambda piece: self.tensors(kind, pieces.format(piece)))
        with torch.device("meta"):
            network = made(self.configs[kind])
        if isinstance(network, Codec):
            network.precision = self.codec_precision
        return _fill(network, self._parts[kind], self.dtype, self.device)

    def tensors(self, kind: str, prefix: str) -> dict[str, torch.Tensor]:
        """Read the tensors of a part whose names start with `prefix`, by the rest of their names."""
        return {
            name.removeprefix(prefix): tensor
            for name, tensor in _read(self._parts[kind], self.precision, prefix)
        }

    @staticmethod
    def fastest(model: str, *codecs: nn.Module) -> dict[str, Any]:
        """Choose the fastest forms of what runs a model, for `compose` of its pipeline. codecs: its own."""
        name = f"torch_ref.cuda.{model}"
        return importlib.import_module(name).forms(*codecs) if importlib.util.find_spec(name) else {}


class How(TypedDict, total=False):
    """The arguments of `load` beside the path and the model."""

    dtype: Literal["float32", "bfloat16", "float16", "float64"] | None
    device: str | None
    codec: str | Path | None
    codec_precision: str | None
    cross_rope: bool | None
    config: str | Path | None
    include: Sequence[str]
    revision: str | None
    offline: bool


def assemble(parts: Parts) -> Pipeline:
    """Build the pipeline of opened parts; this reads their weights.

    Raises CheckpointError for weights that do not fit, and ResourceError where memory would not hold them.
    """
    model = models.MODELS[str(parts.model)]
    model.code().plan.check_loading(parts.configs, parts.machine())
    networks, machine = {kind: parts.network(kind) for kind in model.loaded(parts.configs)}, parts.machine()
    forms = parts.fastest(
        model.name, *(network for kind, network in networks.items() if models.network(kind).is_codec)
    )
    compose = importlib.import_module(f"torch_ref.{model.name}.pipeline").compose
    pipeline = compose(networks, parts.documents, **forms)
    pipeline.engine.fit(machine)
    return pipeline


class Loaded:
    """A pipeline that is loaded from published or converted files of one model."""

    model: ClassVar[models.Model]

    @classmethod
    def load(cls, path: str | Path | Sequence[str | Path], **how: Unpack[How]) -> Self:
        """Load the pipeline; arguments and errors as in `torch_ref.load`.

        Raises UsageError for files of another model.
        """
        parts = open_parts(path, **how)
        check_model(parts.model, cls.model.name)
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
    revision: str | None = None,
    offline: bool = False,
) -> Parts:
    """Open the parts that `load` assembles, without reading tensors. kinds: parts to open; None for all."""
    choose_dtype(dtype, choose_device(device))  # before opening any file
    choose_precision(codec_precision, choose_device(device))
    if not isinstance(path, str | Path | Sequence):
        raise UsageError(f"model: {path!r} is not a path; give a folder, a file or a hub id")
    if isinstance(path, str | Path) and is_hub_id(path):
        there = choose(device, dtype, models.published().get(str(path), (None,))[0])
        form, memory = Form(name_of(there.dtype)), free_bytes(there.device)
        fetch_fitting(str(path), form, revision=revision, offline=offline, memory=memory)
    published = open_published(
        path,
        codec=codec,
        cross_rope=cross_rope,
        config=config,
        include=include,
        parts=kinds,
        flag="model",
        revision=revision,
        offline=offline,
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
    return {kind: parts.network(kind) for kind in parts.configs}


def _fill(network: Network, part: ModelPart, dtype: torch.dtype, device: torch.device) -> Network:
    """Load a part's tensors into an empty network, one at a time; the plan has checked names and shapes."""
    state = dict(_read(part, Precision(device, dtype)))
    network.load_state_dict(state, strict=True, assign=True)
    return network.to(device).eval()


def _read(part: ModelPart, precision: Precision, prefix: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    for name in part.names():
        if name.startswith(prefix):
            dtype = precision.wide if part.stays_float32(name) else precision.dtype
            yield name, tensor(part.read(name)).to(precision.device, dtype)
