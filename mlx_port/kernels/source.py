"""Source of one kernel in two languages, CUDA and Metal."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import mlx.core as mx

from mlx_port.kernels import nvrtc, results

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
        results.record(trial, variant, found)
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
    _compiled: dict[Hashable, tuple[str, bytes]] = field(default_factory=dict, repr=False, compare=False)

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
        size: dict[str, Any] = {"grid": (threads, 1, 1), "threadgroup": (group, 1, 1)}
        made: dict[str, Any] = {"output_shapes": list(shapes), "output_dtypes": list(dtypes)}
        if mx.metal.is_available():
            return self._metal(inputs=list(inputs), template=list(template), **size, **made)
        given = tuple((text_inputs.dtype, text_inputs.ndim) for text_inputs in inputs)
        name, code = self._cuda(given, tuple(dtypes), tuple(template))
        return mx.fast.precompiled_cuda_kernel(
            name=name,
            compiled_source=code,
            inputs=list(inputs),
            scalars=[length for text_inputs in inputs for length in text_inputs.shape],
            ensure_row_contiguous=True,
            **size,
            **made,
        )

    def _cuda(
        self, inputs: tuple[tuple[mx.Dtype, int], ...], outputs: tuple[mx.Dtype, ...], template: Template
    ) -> tuple[str, bytes]:
        """Compile the variant for these dtypes and dimensions, once. Returns its name and machine code."""
        key = inputs, outputs, template
        if key not in self._compiled:
            name = f"{self.name}_{len(self._compiled)}"  # MLX knows a kernel by its name
            given = [(array, *text_inputs) for array, text_inputs in zip(self.inputs, inputs, strict=True)]
            made = list(zip(self.outputs, outputs, strict=True))
            self._compiled[key] = name, nvrtc.compiled(nvrtc.text(name, self.cuda, given, made, template))
        return self._compiled[key]
