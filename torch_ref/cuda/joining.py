"""Several linear layers' weights in one storage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


@torch.inference_mode(False)
@torch.no_grad()
def joined(layers: Sequence[nn.Linear]) -> Tensor:
    """Join the layers' weights in one (ΣN, D) tensor; their parameters become views of it, so nothing is
    stored twice. Weights that are joined already are returned as they are.
    """
    weights = [layer.weight.detach() for layer in layers]
    width, rows = weights[0].shape[1], sum(map(len, weights))
    storage, end = weights[0].untyped_storage().data_ptr(), weights[0].storage_offset()
    for weight in weights:
        if weight.untyped_storage().data_ptr() != storage or weight.storage_offset() != end:
            break
        end += weight.numel()
    else:
        return weights[0].as_strided((rows, width), (width, 1))
    whole = torch.cat(weights)
    for layer, part in zip(layers, whole.split([len(weight) for weight in weights]), strict=True):
        layer.weight = nn.Parameter(part, requires_grad=layer.weight.requires_grad)
    return whole
