"""Parts of a step, built once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

import mlx.core as mx

from mlx_port.kernels.source import on_gpu

Inputs = ParamSpec("Inputs")  # arrays, and tuples of them
Result = TypeVar("Result")


def chain(function: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """Compile a function of arrays: its graph is built once, and each chain of element-wise operations in it
    is one launch. Arrays that it uses besides its inputs must stay the same.

    A CPU has no launches to save, and MLX would call a C++ compiler there: the function runs as it is.
    """
    compiled = cast(Callable[Inputs, Result], mx.compile(function))

    @wraps(function)
    def call(*inputs: Inputs.args, **no: Inputs.kwargs) -> Result:
        return (compiled if on_gpu() else function)(*inputs, **no)

    return call
