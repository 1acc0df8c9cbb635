"""Products of a few rows, each by the path that its chip takes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeGuard

import mlx.core as mx
from mlx import nn

from mlx_port.kernels import rows as kernel
from mlx_port.kernels import source
from mlx_port.kernels.row_paths import QUANTIZED, chosen, forced
from mlx_port.steps.row_blocks import in_blocks


def independent(layer: Callable[[mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    """Return as `product`, but in float32 on a CPU a form whose rows do not depend on each other."""
    return in_blocks(layer) if _has_blocks(layer) else product(layer)


def independent_on_cpu(layer: Callable[[mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    """Return the layer, but in float32 on a CPU as `independent`."""
    return in_blocks(layer) if _has_blocks(layer) else layer


def _has_blocks(layer: object) -> TypeGuard[nn.Linear]:
    if source.on_gpu() or forced() is not None:
        return False
    return isinstance(layer, nn.Linear) and layer.weight.dtype == mx.float32


def product(layer: Callable[[mx.array], mx.array]) -> Callable[[mx.array], mx.array]:
    """Return the layer with the path of its dtype for 2 to 4 rows. (R, D) → (R, N).

    Layers other than linear ones stay as they are. Rows of another dtype than the weight's: MLX's product.
    """
    if isinstance(layer, nn.QuantizedLinear):
        path, build, otherwise = chosen(QUANTIZED).path, partial(_quantized, layer), "mlx"
        kind = layer.scales.dtype
    elif isinstance(layer, nn.Linear):
        path, build, otherwise = chosen(_name(layer.weight.dtype)).path, partial(_plain, layer), "single"
        kind = layer.weight.dtype
    else:
        return layer
    fast = build() if path == "kernel" else None
    if path == "kernel" and fast is None:
        path = otherwise

    def apply(x: mx.array) -> mx.array:
        if path == "mlx" or x.dtype != kind or not 2 <= len(x) <= kernel.MOST_ROWS:
            return layer(x)
        if path == "single" or fast is None:
            return mx.concatenate([layer(row) for row in mx.split(x, len(x))])
        made = fast(x)
        return made + layer["bias"] if "bias" in layer else made

    return apply


def _name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _plain(layer: nn.Linear) -> Callable[[mx.array], mx.array] | None:
    if not kernel.takes(layer.weight):
        return None
    return lambda x: kernel.product(x, layer.weight)


def _quantized(layer: nn.QuantizedLinear) -> Callable[[mx.array], mx.array] | None:
    if not kernel.takes_quantized(layer.bits, layer.group_size, layer.mode, layer.weight):
        return None
    columns = kernel.WIDE if len(layer.weight) >= kernel.WIDE else 0  # one trial for all that are alike
    if not source.passes(kernel.quantized_trial, layer.scales.dtype, layer.bits, layer.group_size, columns):
        return None
    parts, form = (layer.weight, layer.scales, layer["biases"]), (layer.bits, layer.group_size)
    return lambda x: kernel.quantized_product(x, *parts, bits=form[0], group_size=form[1])
