"""Networks that read each weight when a module uses it, so that the whole is never in memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
from mlx import nn

from mlx_port.loading import DTYPES
from mlx_port.stored import cast_floats, dequantize_others, quantize_linears
from mlx_port.stored_published import stored_in
from tts_core.nn.probe import Framework, Probe

if TYPE_CHECKING:
    from converters.published import ModelPart

GROUP = re.compile(r"(.*\.\d+)\..*|(.*)\.[^.]*")  # a list's element, or a module outside of lists


def framework(dtype: str) -> Framework:
    """MLX with a dtype: float32, bfloat16 or float16."""

    def array(values: np.ndarray, like: mx.array | None = None) -> mx.array:
        if values.dtype.kind != "f":
            return mx.array(values)
        return mx.array(values.astype(np.float32)).astype(DTYPES[dtype] if like is None else like.dtype)

    def host(value: mx.array) -> np.ndarray:
        return np.array(value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value)

    return Framework(mx.concatenate, array, host, lambda x: x)


def unloaded(probe: Probe, part: ModelPart, dtype: str) -> tuple[nn.Module, Framework]:
    """Build a probe's network, which reads its tensors when they are used.

    dtype: of weights, as in `framework`; tensors that stay float32 in every folder are float32, codes of
    quantized weights are unchanged.
    """
    weights = stored_in(part)
    network = probe.network_class("mlx_port")(part.config)  # its own arrays are never evaluated
    network.eval()
    names = weights.names()
    if weights.quantization:
        quantize_linears(network, weights.quantization, set(names))
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_group(name), []).append(name)
    latest: dict[str, dict[str, mx.array]] = {}  # of one group

    def read(name: str) -> mx.array:
        group = _group(name)
        if group not in latest:
            latest.clear()
            found = weights.read(groups[group])
            if weights.quantization:
                found = dequantize_others(network, found, weights.quantization)
            latest[group] = {
                key: cast_floats(key, value, DTYPES[dtype], weights.kind) for key, value in found.items()
            }
        return latest[group][name]

    for at, module in network.named_modules():
        lazy = frozenset(
            name for name, value in module.items() if isinstance(value, mx.array) and name[0] != "_"
        )
        if lazy:
            module.__class__ = _reading(type(module), lambda name, at=at: read(f"{at}.{name}"), lazy)
    return network, framework(dtype)


def _group(name: str) -> str:
    found = GROUP.fullmatch(name)
    return name if found is None else found[1] or found[2]


def _reading(own: type, read: Callable[[str], mx.array], lazy: frozenset[str]) -> type:
    """Derive a class of module whose arrays are read at each use."""

    def get(self: Any, name: str, default: Any = None) -> Any:
        return read(name) if name in lazy else dict.get(self, name, default)

    def getattribute(self: Any, name: str) -> Any:
        return read(name) if name in lazy else own.__getattr__(self, name)

    def getitem(self: Any, name: str) -> Any:
        return read(name) if name in lazy else dict.__getitem__(self, name)

    return type(own.__name__, (own,), {"get": get, "__getattr__": getattribute, "__getitem__": getitem})
