"""Weights in memory: their bytes, and how they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tts_core import models
from tts_core.memory.machine import Machine
from tts_core.memory.terms import BYTES, Term, libraries


def weight_bytes(
    kind: str,
    config: object,
    dtype: str,
    quantization: Mapping[str, Any] | None = None,
    *,
    counts: Callable[[str], bool] = models.always,
) -> int:
    """Count the bytes of a network's tensors, with scales and biases of quantized ones.

    kind, config: of the network.
    quantization: as in config.json; a layer's own entry replaces the default.
    counts: the tensors to count, by name.
    """
    known, total, size = models.network(kind), 0, BYTES[dtype]
    for name, shape in known.parameter_shapes(config).items():
        if not counts(name):
            continue
        elements = math.prod(shape)
        how = (quantization or {}).get(name.removesuffix(".weight"), quantization)
        if known.stays_float32(name):
            total += max(4, size) * elements
        elif not how or not known.is_large(name) or shape[-1] % how["group_size"]:
            total += size * elements
        else:
            per_scale = 2 * size if how["mode"] == "affine" else 1
            total += elements * how["bits"] // 8 + elements // how["group_size"] * per_scale
    return total


def stored_as(machine: Machine) -> str:
    """Describe the storage of the large networks' weights for a table."""
    how, dtype = machine.held, machine.dtype
    if how is None:
        return dtype
    return f"{how['mode']}, {how['bits']} bits in groups of {how['group_size']}; the rest {dtype}"


def stored_with_norms(machine: Machine) -> str:
    """Describe the storage of weights whose norms stay float32."""
    return stored_as(machine) + ("" if machine.held else ", norms float32")


def kept_terms(weights: int, codec_weights: int, machine: Machine) -> tuple[Term, ...]:
    """Return what one network with float32 norms and its codec keep from loading on. Weights: bytes."""
    return (
        Term("weights", weights, stored_with_norms(machine)),
        Term("codec weights", codec_weights, f"float{8 * machine.wide}"),
        libraries(machine.backend),
    )
