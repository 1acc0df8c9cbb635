"""One kernel in two languages."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import mlx.core as mx

from mlx_port.kernels import results

Template = Sequence[tuple[str, int | bool | mx.Dtype]]


@cache
def passes(trial: Callable[..., bool], *variant: Hashable) -> bool:
    """Return True on a GPU on which a kernel's trial succeeds. It runs once: a chip or compiler on which the
    kernel was never tested then gets the plain form, not an error.

    variant: arguments of the trial, such as a dtype.  Results are kept (mlx_port.kernels.results).
    """
    if not on_gpu():
        return False
    found = results.known(trial, variant)
    if found is None:
        try:
            found = trial(*variant)
        except (RuntimeError, ValueError):  # it does not compile or start; it may lack memory, so not kept
            return False
        results.keep(trial, variant, found)
    return found


def near(found: mx.array, expected: mx.array) -> bool:
    """Return True if two arrays agree to a few roundings of half precision."""
    wide = found.astype(mx.float32), expected.astype(mx.float32)
    return bool(mx.allclose(*wide, rtol=2e-2, atol=2e-2).item())


def on_gpu() -> bool:
    """Return True if arrays are computed on a GPU, where kernels run."""
    return mx.default_device().type == mx.DeviceType.gpu


@dataclass(frozen=True)
class Kernel:
    """A kernel's two texts, bodies of functions of arrays; compiled on first use.

    inputs, outputs: names of the arrays, all contiguous.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    cuda: str
    metal: str

    @cached_property
    def _cuda(self) -> Callable[..., Any]:
        made: Any = mx.fast.cuda_kernel(self.name, self.inputs, self.outputs, self.cuda)
        return made

    @cached_property
    def _metal(self) -> Callable[..., Any]:
        made: Any = mx.fast.metal_kernel(self.name, self.inputs, self.outputs, self.metal)
        return made

    def __call__(
        self,
        inputs: Sequence[mx.array],
        *,
        threads: int,
        group: int,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
        template: Template = (),
    ) -> list[mx.array]:
        """Run it on `threads` threads in groups of `group`; returns outputs of these shapes and dtypes."""
        run = self._metal if mx.metal.is_available() else self._cuda
        return run(
            inputs=list(inputs),
            template=list(template),
            grid=(threads, 1, 1),
            threadgroup=(group, 1, 1),
            output_shapes=list(shapes),
            output_dtypes=list(dtypes),
        )
