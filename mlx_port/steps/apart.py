"""Sequences that are read together, of which each has on a CPU the numbers that it has alone."""

from __future__ import annotations

from contextlib import AbstractContextManager

import mlx.core as mx
from mlx import nn

from mlx_port.kernels.source import on_gpu
from tts_core.nn.packed import Packed, each_sequence


def sequences_apart(network: nn.Module, packed: Packed) -> AbstractContextManager[None]:
    """Let linears inside compute each sequence by itself, because OpenBLAS adds in other orders for other
    numbers of rows; without effect on a GPU.
    """
    if not on_gpu() and not vars(network).setdefault("_is_apart", False):
        for layer in network.modules():
            if type(layer) is nn.Linear:
                layer.__class__ = SequenceLinear
        vars(network)["_is_apart"] = True
    return packed.apart(is_on=not on_gpu())


class SequenceLinear(nn.Linear):
    """nn.Linear, which inside `sequences_apart` computes each sequence by itself.

    (..., T, D) → (..., T, N).
    """

    def __call__(self, x: mx.array) -> mx.array:
        return each_sequence(super().__call__, x, mx.concatenate)
