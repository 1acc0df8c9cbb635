"""Sequences that are read together, of which each has on a CPU the numbers that it has alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

import mlx.core as mx
from mlx import nn

from mlx_port.kernels.source import on_gpu
from tts_core.nn.packed import Packed

_HERE = local()  # of this thread. packed: sequences that are read


@contextmanager
def sequences_apart(network: nn.Module, packed: Packed) -> Iterator[None]:
    """Let linears inside compute each sequence by itself, because OpenBLAS adds in other orders for other
    numbers of rows; without effect on a GPU.
    """
    before = _packed()
    if not on_gpu():
        for layer in network.modules():
            if type(layer) is nn.Linear:
                layer.__class__ = SequenceLinear
        _HERE.packed = packed
    try:
        yield
    finally:
        _HERE.packed = before


def _packed() -> Packed | None:
    return getattr(_HERE, "packed", None)


class SequenceLinear(nn.Linear):
    """nn.Linear, which inside `sequences_apart` computes each sequence by itself.

    (..., T, D) → (..., T, N).
    """

    def __call__(self, x: mx.array) -> mx.array:
        packed = _packed()
        if packed is None or x.ndim < 2 or x.shape[-2] != packed.total or len(packed.filled) == 1:
            return super().__call__(x)
        call = super().__call__
        return mx.concatenate([call(x[..., span, :]) for span in packed.filled], axis=-2)
