"""Parallel linear layers of one input as one product, and tables that are read together as one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, cast

import mlx.core as mx
from mlx import nn

Layer = nn.Linear | nn.QuantizedLinear | nn.Embedding
BY_ROW = ("weight", "scales", "biases", "bias")  # parameters with one row per output


@dataclass(frozen=True, eq=False)
class Concatenated:
    """The layer that replaces others, and their parameters, which are views of its own."""

    layer: Layer
    parts: list[dict[str, mx.array]]


class Separate:
    """Layers that are not quantized alike, each by itself. (..., D) → (..., ΣN)."""

    def __init__(self, layers: Sequence[Layer]):
        self.layers = layers

    def __call__(self, x: mx.array) -> mx.array:
        return mx.concatenate([layer(x) for layer in self.layers], axis=-1)


def concatenated(layers: Sequence[Layer]) -> Layer | Separate:
    """Join layers into one with all of their outputs, in order; their parameters become views of its own, so
    nothing is stored twice. Layers that are already joined return the same layer again.
    """
    first = layers[0]
    known = vars(first).get("_concatenated")
    if isinstance(known, Concatenated) and _holds(known, layers):
        return known.layer
    if len({_form(layer) for layer in layers}) > 1:
        return Separate(layers)
    whole, parts = copy.copy(first), [dict[str, mx.array]() for _ in layers]
    vars(whole).pop("_concatenated", None)
    cuts = [0, *accumulate(len(layer.weight) for layer in layers)]
    for name in [name for name in BY_ROW if name in first]:
        every = mx.concatenate([cast(mx.array, layer[name]) for layer in layers])
        mx.eval(every)
        whole[name] = every
        for layer, part, (start, stop) in zip(layers, parts, pairwise(cuts), strict=True):
            layer[name] = part[name] = every[start:stop]
        mx.eval(*(part[name] for part in parts))  # else the graphs of the old ones would stay in memory
    vars(first)["_concatenated"] = Concatenated(whole, parts)
    return whole


def _holds(known: Concatenated, layers: Sequence[Any]) -> bool:
    """Return True if the layers' parameters are still the views."""
    return len(known.parts) == len(layers) and all(
        layer[name] is value
        for layer, part in zip(layers, known.parts, strict=True)
        for name, value in part.items()
    )


def _form(layer: Layer) -> str:
    """Describe the form that joined layers must share."""
    names = "+".join(name for name in BY_ROW if name in layer)
    if isinstance(layer, nn.QuantizedLinear):
        return f"{layer.mode} {layer.bits} bits by {layer.group_size} ({names})"
    return f"{layer.weight.dtype} ({names})"
