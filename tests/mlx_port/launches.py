"""Count what a GPU launches for arrays that are not evaluated yet, from their graph, on any machine.

A view costs nothing, a copy one launch, a concatenation one a part. `as_on_metal` gives mx.fast's operations,
custom kernels and compiled chains, which a CPU replaces by many operations, as one launch each.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import mlx.core as mx

from mlx_port.kernels import add_norm, noise, norm_rotate, rotate, rows, source

VIEWS = {
    *("AsStrided", "Broadcast", "BroadcastAxes", "Copy", "Depends", "ExpandDims", "Flatten", "Reshape"),
    *("Slice", "Split", "Squeeze", "StopGradient", "Transpose", "Unflatten", "View"),
}
NODE = re.compile(r"^\{ (\d+) \[label =\"(\w+)\"", re.MULTILINE)
INPUT = re.compile(r"^\"\w+\" -> (\d+)$", re.MULTILINE)

STAND_IN = "CumSum"  # the operation that stands for a kernel

KERNELS = (
    add_norm.KERNEL,
    noise.KERNEL,
    norm_rotate.KERNEL,
    rows.KERNEL,
    rows.QUANTIZED_KERNEL,
    rotate.KERNEL,
)


def launches(*outputs: mx.array) -> Counter[str]:
    """Count launches by operation."""
    text = io.StringIO()
    mx.export_to_dot(text, *outputs)
    inputs, found = Counter(INPUT.findall(text.getvalue())), Counter[str]()
    for node, name in NODE.findall(text.getvalue()):
        if name not in VIEWS:
            found[name] += inputs[node] if name == "Concatenate" else 2 if name == "Pad" else 1
    return found


@contextmanager
def as_on_metal() -> Iterator[None]:
    """Build graphs as on a Mac: one operation for each kernel that a CPU does not have. They do not compute
    anything.
    """
    for kernel in KERNELS:
        vars(kernel).pop("_metal", None)  # one that another test has built
    with (
        mock.patch.object(mx, "default_device", return_value=mx.Device(mx.DeviceType.gpu)),
        mock.patch.object(mx.metal, "is_available", return_value=True),
        mock.patch.object(mx.fast, "rms_norm", lambda x, weight, eps: _after(x, weight)),
        mock.patch.object(mx.fast, "layer_norm", lambda x, weight, bias, eps: _after(x, weight, bias)),
        mock.patch.object(mx.fast, "scaled_dot_product_attention", _attention),
        mock.patch.object(mx.fast, "metal_kernel", _kernel),
        mock.patch.object(source, "passes", return_value=True),
    ):
        yield
    for kernel in KERNELS:
        vars(kernel).pop("_metal", None)


def _after(x: mx.array, *others: mx.array) -> mx.array:
    """One operation that needs all of them, like x in shape, in their common type."""
    kind = x.dtype
    for other in others:
        kind = mx.result_type(mx.zeros((), kind), other)
    [x] = mx.depends([x.astype(kind)], list(others))
    return _stand_in(x)


def _attention(
    query: mx.array, key: mx.array, value: mx.array, *, scale: float, mask: Any = None
) -> mx.array:
    return _after(query, key, value, *([mask] if isinstance(mask, mx.array) else []))


def _kernel(*_: Any) -> Any:
    """A custom kernel: its first output is one operation, the others views of it."""

    def call(*, inputs: list[mx.array], output_shapes: Any, output_dtypes: Any, **_: Any) -> list[mx.array]:
        filled = mx.broadcast_to(mx.array(0, output_dtypes[0]), output_shapes[0])
        [one] = mx.depends([filled], inputs)
        one = _stand_in(one)
        rest = zip(output_shapes[1:], output_dtypes[1:], strict=True)
        return [one, *(mx.as_strided(one.view(kind), shape, [0] * len(shape)) for shape, kind in rest)]

    return call


def _stand_in(x: mx.array) -> mx.array:
    """One launch that mx.compile neither merges with an equal one nor puts into a chain."""
    return mx.cumsum(x, axis=-1)


def bytes_read(step: Callable[[], tuple[mx.array, ...]]) -> int:
    """Count the bytes that all launches of a step read, compiled chains operation by operation."""
    found = 0

    def see(part: dict[str, Any]) -> None:
        nonlocal found
        if part["type"] != "primitive" or part["name"] in VIEWS:
            return
        inputs, outputs = (
            [math.prod(shape) * kind.size for _, shape, kind in part[key]] for key in ("inputs", "outputs")
        )
        if part["name"] == "Gather":
            found += outputs[0]  # rows of a table
        elif part["name"] == "SliceUpdate":
            found += inputs[1]  # the rest stays in place
        else:
            found += sum(inputs)

    mx.disable_compile()  # a compiled chain cannot be exported
    try:
        mx.export_function(see, lambda _: step(), mx.zeros(1))
    finally:
        mx.enable_compile()
    return found
