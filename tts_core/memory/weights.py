"""Weights in memory: their bytes, and how they are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tts_core import models
from tts_core.config import Configs
from tts_core.memory.machine import BYTES, Machine


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


def held(configs: Configs, kinds: Iterable[str], machine: Machine, *, tables: int = 0) -> int:
    """Count the bytes that networks keep from loading on. tables: float32 numbers besides their weights."""
    sizes = (weight_bytes(kind, configs[kind], machine.dtype, machine.held) for kind in kinds)
    return sum(sizes) + 4 * tables
