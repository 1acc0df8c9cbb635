"""Which networks a model is made of, where a converted folder holds each, and what may be done to it.

KINDS has one entry a kind of network, MODELS one a model. A kind's name is also the `model_type` in the
config.json of its part of a converted folder; the root's is that of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts_core import dac, dia, dia_shapes
from tts_core.errors import CheckpointError

Shapes = dict[str, tuple[int, ...]]
Axes = tuple[int, ...]


def _always(name: str) -> bool:
    return True


def _never(name: str) -> bool:
    return False


def _no_axes(config: Any, name: str, rank: int) -> None:
    return None


def _axes_by_name(axes: Callable[[str, int], Axes | None]) -> Callable[[Any, str, int], Axes | None]:
    """Where the configuration does not matter."""
    return lambda config, name, rank: axes(name, rank)


@dataclass(frozen=True)
class Kind:
    """A kind of network. Names are canonical ones; shapes are in PyTorch's axis order."""

    title: str  # in messages
    folder: str  # inside a converted folder; "" is the root
    parameter_shapes: Callable[[Any], Shapes]  # of its configuration
    read_converted: Callable[[Mapping[str, Any]], Any]  # its configuration, from our own schema
    stays_float32: Callable[[str], bool] = _always  # whatever the dtype that is asked for
    is_large: Callable[[str], bool] = _never  # the linear layers that quantising takes
    mlx_axes: Callable[[Any, str, int], Axes | None] = _no_axes  # configuration, name, rank → order or None
    documents: tuple[str, ...] = ()  # texts beside config.json: tokenizers
    license: str | None = None  # of the published weights: SPDX, or as the hub writes it

    @property
    def takes_dtype(self) -> bool:
        """Whether any of its tensors follows the dtype that is asked for."""
        return self.stays_float32 is not _always


@dataclass(frozen=True)
class Model:
    """What is made of parts. `own` tells it from others: the kinds that no other model has."""

    title: str
    own: tuple[str, ...]
    parts: tuple[str, ...]  # all that it needs, in the order in which they are written
    extras: tuple[str, ...] = ()  # what may be left out, and is unless asked for
    check: Callable[[Mapping[str, Any]], None] = lambda configs: None  # CheckpointError for parts of another

    def wanted(self, extras: Sequence[str]) -> tuple[str, ...]:
        """Its parts, and those extras that are asked for."""
        return (*self.parts, *(kind for kind in self.extras if kind in extras))


def is_large_in_dia(name: str) -> bool:
    """What a decoding step reads. Embeddings stay, as a step reads single rows of them."""
    return name.endswith(("_proj.weight", "logits_dense.weight"))


def _check_dia(configs: Mapping[str, Any]) -> None:
    decoder = configs["dia"].decoder_config
    dac.check_fits(configs["dac"], decoder.num_channels, configs["dia"].eos_token_id)


KINDS = {
    "dia": Kind(
        title="Dia",
        folder="",
        parameter_shapes=dia_shapes.parameter_shapes,
        read_converted=dia.read_converted,
        stays_float32=dia_shapes.is_norm,
        is_large=is_large_in_dia,
    ),
    "dac": Kind(
        title="DAC (the codec)",
        folder="codec",
        parameter_shapes=dac.parameter_shapes,
        read_converted=dac.read_converted,
        mlx_axes=_axes_by_name(dac.mlx_axes),
    ),
}
MODELS = {"dia": Model("Dia", own=("dia",), parts=("dia", "dac"), check=_check_dia)}


def check_fits(model: str, configs: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the parts of a model belong together; parts that are absent fit."""
    if all(kind in configs for kind in MODELS[model].parts):
        MODELS[model].check(configs)


def kind_of(model_type: Any, where: str) -> Kind:
    """The kind that a converted config.json names. Raises CheckpointError for one that is unknown."""
    if not isinstance(model_type, str) or model_type not in KINDS:
        raise CheckpointError(f"{where}: model_type {model_type!r:.40} is none of {', '.join(KINDS)}")
    return KINDS[model_type]
