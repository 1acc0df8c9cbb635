"""Several linear layers' weights in one storage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


@torch.inference_mode(False)
@torch.no_grad()
def concatenated(layers: Sequence[nn.Linear] | Sequence[nn.Embedding]) -> Tensor:
    """Join the layers' weights in one (ΣN, D) tensor; their parameters become views of it, so nothing is
    stored twice. Weights that are joined already are returned as they are.
    """
    weights = [layer.weight.detach() for layer in layers]
    width, sizes = weights[0].shape[1], [len(weight) for weight in weights]
    if _is_consecutive(weights, sizes):
        return weights[0].as_strided((sum(sizes), width), (width, 1))
    whole = torch.cat(weights)
    _point(layers, whole.split(sizes))
    return whole


@torch.inference_mode(False)
@torch.no_grad()
def stacked(layers: Sequence[nn.Linear], rows: int) -> Tensor:
    """Stack the layers' weights (N, D) in one (L, rows, D) tensor, padded by zeros; as in `joined`, their
    parameters become views of it.
    """
    weights = [layer.weight.detach() for layer in layers]
    width = weights[0].shape[1]
    if _is_consecutive(weights, [rows] * len(weights)):
        return weights[0].as_strided((len(weights), rows, width), (rows * width, width, 1))
    whole = weights[0].new_zeros(len(weights), rows, width)
    for part, weight in zip(whole, weights, strict=True):
        part[: len(weight)] = weight
    _point(layers, [part[: len(weight)] for part, weight in zip(whole, weights, strict=True)])
    return whole


def _is_consecutive(weights: Sequence[Tensor], sizes: Sequence[int]) -> bool:
    """Return whether the weights follow each other in one storage, `sizes` rows from one to the next."""
    first, width = weights[0], weights[0].shape[1]
    at, held = first.storage_offset(), first.untyped_storage()
    for weight, rows in zip(weights, sizes, strict=True):
        if weight.untyped_storage().data_ptr() != held.data_ptr() or weight.storage_offset() != at:
            return False
        at += rows * width
    return at * first.element_size() <= held.nbytes()


def _point(layers: Sequence[nn.Linear] | Sequence[nn.Embedding], parts: Sequence[Tensor]) -> None:
    for layer, part in zip(layers, parts, strict=True):
        layer.weight = nn.Parameter(part, requires_grad=layer.weight.requires_grad)
