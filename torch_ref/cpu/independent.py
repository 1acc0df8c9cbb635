"""Steps of single rows in float32 on a CPU, in which a text's numbers do not depend on the other texts.

Products of a few rows run in whole blocks (tts_core.nn.row_calls), and each row attends only to its own keys,
without padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from threading import local
from weakref import WeakSet

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tts_core.nn.row_calls import FIXED, FOR_BATCHES, Calls, first_independent

_HERE = local()  # is_on: in this thread
_READY: WeakSet[nn.Module] = WeakSet()


@contextmanager
def independent_rows(network: nn.Module) -> Iterator[None]:
    """Let the network's steps be computed so inside; without effect on a GPU and in half precision."""
    if network not in _READY:
        for layer in network.modules():
            if type(layer) is nn.Linear:
                layer.__class__ = RowLinear
        _READY.add(network)
    before, _HERE.is_on = is_on(), next(network.parameters()).is_cpu
    try:
        yield
    finally:
        _HERE.is_on = before


def is_on() -> bool:
    """Return True inside `independent_rows`."""
    return getattr(_HERE, "is_on", False)


class RowLinear(nn.Linear):
    """nn.Linear, which inside `independent_rows` computes few rows, each by itself. (..., D) → (..., N)."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear; inside `independent_rows` of few rows. (..., D) → (..., N)."""
    if not is_on() or x.dtype != torch.float32 or weight.dtype != torch.float32:
        return F.linear(x, weight, bias)
    rows, calls = x.reshape(-1, x.shape[-1]), _calls(*weight.shape)
    count, whole = len(rows), calls.padded(len(rows))
    if whole > count:
        rows = F.pad(rows, (0, 0, 0, whole - count))
    if whole <= calls.most:
        made = F.linear(rows, weight)
    else:
        made = torch.cat([F.linear(part, weight) for part in rows.split(calls.sizes(whole))])
    made = made[:count].view(*x.shape[:-1], -1)
    return made if bias is None else made + bias


@cache
def _calls(outputs: int, inputs: int) -> Calls:
    """Choose the calls of a product with weights (outputs, inputs) on this machine."""
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0))

    def product(x: np.ndarray) -> np.ndarray:
        return F.linear(torch.from_numpy(x), weight).numpy()

    return first_independent([(product, inputs)], FOR_BATCHES) or FIXED[-1]


def takes(query: Tensor, mask: Tensor | None) -> bool:
    """Return True if `attend` is to compute attention with this mask."""
    if mask is None or not is_on() or query.dtype != torch.float32 or mask.dtype != torch.bool:
        return False
    return query.dim() == 4 and tuple(mask.shape[:-1]) == (len(query), 1, 1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """Attend to the first keys that a row's mask names, rows with as many keys together.

    (R, H, L, E), (R, H, S, E) twice, (R, 1, 1, S) → (R, H, L, E).
    """
    parts, first = list[Tensor](), 0
    for count, run in groupby(mask.sum(dim=-1).flatten().tolist()):
        last = first + len(list(run))
        near, heard = key[first:last, :, :count], value[first:last, :, :count]
        parts.append(F.scaled_dot_product_attention(query[first:last], near, heard, scale=scale))
        first = last
    return parts[0] if len(parts) == 1 else torch.cat(parts)
