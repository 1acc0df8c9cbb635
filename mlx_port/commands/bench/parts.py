"""Parts of a model with random weights, or quantized in memory, as if a folder contained them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlx_port.loading import DTYPES, Parts
from tts_core import models
from tts_core.config import Configs
from tts_core.models import Documents
from tts_core.shapes import Shape, mlx_axes

NOWHERE = Path("(random weights)")


class QuantizedParts(Parts):
    """The parts of a converted folder that is not quantized.

    quantization: to apply while loading, as in config.json; None leaves the weights as they are.
    """

    quantization: Mapping[str, Any] | None = None

    def quantization_of(self, kind: str) -> dict[str, Any] | None:
        """Build the entry of a part; layers whose width does not fit are excepted."""
        if self.quantization is None:
            return super().quantization_of(kind)
        known, group = models.network(kind), self.quantization["group_size"]
        shapes = known.parameter_shapes(self.configs[kind])
        large = {name: shape for name, shape in shapes.items() if known.is_large(name)}
        plain = [name.removesuffix(".weight") for name, shape in large.items() if shape[-1] % group]
        return {**self.quantization, **dict.fromkeys(plain, False)} if large else None

    def _read(self, kind: str) -> dict[str, mx.array]:
        weights = self._floats(kind)
        how = None if self.quantization is None else self.quantization_of(kind)
        return weights if how is None else self._quantized(weights, kind, how)

    def _floats(self, kind: str) -> dict[str, mx.array]:
        return super()._read(kind)

    def _quantized(self, weights: dict[str, mx.array], kind: str, how: dict[str, Any]) -> dict[str, mx.array]:
        made: dict[str, mx.array] = {}
        dtype, known = DTYPES[self.dtype_of(kind)], models.network(kind)
        for name in list(weights):
            value, layer = weights.pop(name), name.removesuffix(".weight")
            if not known.is_large(name) or how.get(layer) is False:
                made[name] = value
                continue
            arrays = mx.quantize(value.astype(dtype), how["group_size"], how["bits"], how["mode"])
            names = (name, f"{layer}.scales", f"{layer}.biases")
            made |= dict(zip(names, arrays, strict=True))
        return made


class RandomParts(QuantizedParts):
    """Parts of these configurations and documents, whose weights are drawn as they are loaded."""

    def __init__(self, model: str, configs: Configs, documents: Documents, dtype: str):
        self.model, self.folder, self.dtype = model, NOWHERE, dtype
        self.configs, self.documents = dict(configs), dict(documents)
        self._raw = {kind: {"dtype": "float32"} for kind in configs}
        models.check_fits(model, self.configs, self.documents)

    def _floats(self, kind: str) -> dict[str, mx.array]:
        shapes = models.network(kind).parameter_shapes(self.configs[kind])
        return {name: _random(name, shape) for name, shape in shapes.items()}


def _random(name: str, shape: Shape) -> mx.array:
    """Draw a tensor that keeps activations at the size of trained ones; gains are 1, offsets 0.

    shape: canonical. Nothing is computed before it is read.
    """
    if len(shape) == 1:
        return mx.ones(shape) if name.endswith(("weight", "alpha")) else mx.zeros(shape)
    laid = tuple(shape[axis] for axis in mlx_axes(shape) or range(len(shape)))
    if name.endswith("alpha"):
        return mx.ones(laid)
    key = mx.random.key(zlib.crc32(name.encode()))
    return mx.random.normal(laid, key=key, scale=math.prod(shape[1:]) ** -0.5)
