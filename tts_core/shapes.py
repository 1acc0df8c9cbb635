"""Shapes of a network's tensors as a tree of its modules, in PyTorch's order of axes; MLX's order.

They are not read from the networks: conversion and `estimate` need no framework, and networks compute tables
of positions, which the unchecked config.json of a file could make too large for any memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union, cast

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Module = Union[Shape, "Mapping[str, Module]", "Sequence[Module]"]  # a tensor; children by name; by index


class TransposedKernel(Shape):
    """Shape of a transposed convolution's weight: (in, out, k)."""


def shapes(module: Module) -> Shapes:
    """Map canonical names, joined by dots, to shapes, in the tree's order."""
    return {".".join(names): shape for names, shape in _tensors(module)}


def _tensors(module: Module, *names: str) -> Iterator[tuple[tuple[str, ...], Shape]]:
    if isinstance(module, tuple):
        yield names, cast(Shape, module)
        return
    for name, child in module.items() if isinstance(module, Mapping) else enumerate(module):
        yield from _tensors(child, *names, str(name))


def weight(*shape: int) -> Module:
    """Build a module without bias: an embedding (rows, width), or as `biased`."""
    return {"weight": shape}


def biased(out: int, *rest: int) -> Module:
    """Build a linear (out, in), a convolution (out, in, k) or a norm (width,) with a bias."""
    return {"weight": (out, *rest), "bias": (out,)}


def transposed(into: int, out: int, kernel: int) -> Module:
    """Build a transposed convolution with a bias."""
    return {"weight": TransposedKernel((into, out, kernel)), "bias": (out,)}


def attention(sizes: Any) -> dict[str, Module]:
    """Build the projections of self-attention. sizes: a configuration with widths and numbers of heads."""
    queries, keys = (n * sizes.head_dim for n in (sizes.num_attention_heads, sizes.num_key_value_heads))
    return projections(sizes.hidden_size, queries, keys, sizes.hidden_size)


def projections(width: int, queries: int, keys: int, source: int) -> dict[str, Module]:
    """Build attention's projections. queries, keys: rows of all heads.  source: width of keys' input."""
    key = weight(keys, source)
    return {"q_proj": weight(queries, width), "k_proj": key, "v_proj": key, "o_proj": weight(width, queries)}


def mlx_axes(shape: Shape) -> tuple[int, ...] | None:
    """Return the order of axes in MLX's channels-last layout of convolutions; None if it is the same."""
    if len(shape) != 3:
        return None
    return (1, 2, 0) if isinstance(shape, TransposedKernel) else (0, 2, 1)
