"""Element-wise operations as one kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar, cast

import mlx.core as mx

Inputs = ParamSpec("Inputs")  # arrays
Result = TypeVar("Result")


def chain(function: Callable[Inputs, Result]) -> Callable[Inputs, Result]:
    """Compile a function of arrays: each chain of element-wise operations becomes one launch.

    A CPU has no launches to save, and MLX would call a C++ compiler there: the function runs as it is.
    """
    compiled = cast(Callable[Inputs, Result], mx.compile(function))

    @wraps(function)
    def call(*inputs: Inputs.args, **no: Inputs.kwargs) -> Result:
        on_cpu = mx.default_device().type == mx.DeviceType.cpu
        return (function if on_cpu else compiled)(*inputs, **no)

    return call
