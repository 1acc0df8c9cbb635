"""A GPU's stand-in: kernels by their formulas on the CPU, and a record of trials and compiled variants.

MLX compiles a kernel for each value of its template, for the dtypes of its arrays and, on Metal, for each
input that is a constant because it is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_port.kernels import attention_support, results, row_paths, source
from mlx_port.kernels.rows import LEAST
from mlx_port.kernels.source import Kernel, Template
from mlx_port.layers.rope import rotate, rotate_pairs
from tts_core.nn.noise import HostNoise

INFO = {
    "device_name": "stand-in",
    "architecture": "applegpu_g15x",
    "max_recommended_working_set_size": 2**36,
    "memory_size": 2**37,
}
CACHES = (source.passes, results._read, row_paths.chosen)


@dataclass
class StandIn:
    """Records what a chip's compiler would see."""

    trials: set[tuple[Any, ...]] = field(default_factory=set)
    variants: set[tuple[Any, ...]] = field(default_factory=set)

    @contextmanager
    def instead(self, *, metal: bool) -> Iterator[None]:
        """Take the place of the default device, with nothing tried so far."""
        mx.disable_compile()
        try:
            with pytest.MonkeyPatch.context() as patch:
                self._enter(patch, metal=metal)
                yield
        finally:
            mx.enable_compile()
            self.forget()

    def _enter(self, patch: pytest.MonkeyPatch, *, metal: bool) -> None:
        gpu = mx.Device(mx.DeviceType.gpu)
        patch.setattr(mx, "default_device", lambda: gpu)
        patch.setattr(mx, "device_info", lambda: INFO)
        patch.setattr(mx.metal, "is_available", lambda: metal)
        patch.setattr(Kernel, "__call__", lambda kernel, inputs, **how: self.call(kernel, inputs, **how))
        patch.setattr(results, "known", self.known)
        patch.setattr(results, "record", lambda *_: None)
        patch.setattr(attention_support, "LONG", 8)  # small models have shorter texts
        self.forget()

    def forget(self) -> None:
        """Forget the results of trials, as a new process."""
        for one in CACHES:
            one.cache_clear()

    def seen(self) -> tuple[set[tuple[Any, ...]], set[tuple[Any, ...]]]:
        """Return the trials and variants so far."""
        return set(self.trials), set(self.variants)

    def known(self, trial: Any, variant: tuple[Any, ...]) -> None:
        """Record a trial that is to run."""
        self.trials.add((f"{trial.__module__}.{trial.__name__}", *map(str, variant)))

    def call(
        self,
        kernel: Kernel,
        inputs: Sequence[mx.array],
        *,
        threads: int,
        group: int,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype],
        template: Template = (),
    ) -> list[mx.array]:
        """Compute a kernel's outputs by its formula."""
        assert threads > 0
        assert 0 < group <= 1024
        given = [(str(one.dtype), one.size < LEAST) for one in inputs]
        values = [(name, str(value)) for name, value in template]
        self.variants.add((kernel.name, *values, *given, *map(str, dtypes)))
        found = FORMULAS[kernel.name](*inputs, **dict(template))
        return [
            one.astype(dtype).reshape(shape) for one, shape, dtype in zip(found, shapes, dtypes, strict=True)
        ]


def add_norm(x: mx.array, added: mx.array, rest: mx.array, weight: mx.array, eps: mx.array, **_: Any):
    if len(added) < len(x):
        added = mx.concatenate([added, mx.broadcast_to(rest, (len(x) - len(added), len(rest)))])
    total = (x.astype(mx.float32) + added.astype(mx.float32)).astype(x.dtype)
    return total, mx.fast.rms_norm(
        total.astype(mx.float32), weight.astype(mx.float32), float(np.array(eps)[0])
    )


def turn(x: mx.array, spin: mx.array, query_heads: mx.array, *, PAIRS: bool, **_: Any):
    parts = x.reshape(len(x), -1, 1, 2 * spin.shape[-1]).astype(mx.float32)
    asking = int(np.array(query_heads)[0])
    kept = (parts.shape[1] - asking) // 2
    form = rotate_pairs if PAIRS else rotate
    turned = form(parts[:, : asking + kept], (spin[:, 0][:, None, None], spin[:, 1][:, None, None]))
    if not kept:
        return turned, mx.zeros(1)
    return turned[:, :asking], mx.stack([turned[:, asking:], parts[:, asking + kept :]])


def norm_turn(x: mx.array, spin: mx.array, gains: mx.array, query_heads: mx.array, eps: mx.array, **_: Any):
    parts = x.reshape(len(x), -1, 2 * spin.shape[-1])
    wide, both = parts.astype(mx.float32), len(gains)
    unit = mx.fast.rms_norm(wide[:, :both], mx.ones(wide.shape[-1]), float(np.array(eps)[0]))
    normed = (unit * gains).astype(x.dtype).astype(mx.float32)
    turned = rotate(normed, (spin[:, 0][:, None], spin[:, 1][:, None]))
    asking = int(np.array(query_heads)[0])
    return turned[:, :asking], mx.stack([turned[:, asking:], wide[:, both:]])


def uniform(seeds: mx.array, **_: Any):
    words = np.array(seeds)
    return [
        mx.array(np.stack([HostNoise(int(row[0])).uniform(int(row[1]), (int(row[2]),)) for row in words]))
    ]


def rows(x: mx.array, w: mx.array, **_: Any):
    assert x.dtype == w.dtype, "the kernel reads both as one type"
    return [x.astype(mx.float32) @ w.astype(mx.float32).T]


def quantized_rows(
    x: mx.array, w: mx.array, scales: mx.array, biases: mx.array, *, BITS: int, SPAN: int, **_: Any
):
    wide = mx.dequantize(w, scales.astype(mx.float32), biases.astype(mx.float32), SPAN, BITS)
    return [x.astype(mx.float32) @ wide.T]


FORMULAS: dict[str, Any] = {
    "add_norm": add_norm, "turn": turn, "norm_turn": norm_turn, "uniform": uniform, "rows": rows,
    "quantized_rows": quantized_rows,
}  # fmt: skip
