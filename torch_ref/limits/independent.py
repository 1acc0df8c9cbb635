"""Steps of single rows in float32 on a CPU, whose numbers do not depend on the other texts.

Products of a few rows run in whole blocks (tts_core.nn.row_calls), and each row attends only to its own keys,
without padding. Of sequences that are read together each has products and SiLU of its own, in any dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import local
from weakref import WeakSet

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tts_core.nn.packed import Packed, each_sequence
from tts_core.nn.row_calls import FIXED, FOR_BATCHES, Calls, alike, first_independent

_HERE = local()  # of this thread. is_on; keys: of each row
_READY: WeakSet[nn.Module] = WeakSet()


@contextmanager
def independent_rows(network: nn.Module, keys: Sequence[int] | np.ndarray = ()) -> Iterator[None]:
    """Let the network's steps be computed so inside; without effect on a GPU and in half precision.

    keys: that each row sees with this step's own, from the first on, where masks hide others: numbers of the
    host, so that no mask is read. Those that a ring buffer no longer keeps may be counted.
    """
    _prepare(network)
    before = is_on(), _keys()
    _HERE.is_on, _HERE.keys = next(network.parameters()).is_cpu, [int(count) for count in keys]
    try:
        yield
    finally:
        _HERE.is_on, _HERE.keys = before


def sequences_apart(network: nn.Module, packed: Packed) -> AbstractContextManager[None]:
    """Let sequences inside have the numbers that each has alone; without effect on a GPU."""
    is_cpu = next(network.parameters()).is_cpu
    if is_cpu:
        _prepare(network)
    return packed.apart(is_on=is_cpu)


def _prepare(network: nn.Module) -> None:
    if network in _READY:
        return
    for layer in network.modules():
        if type(layer) is nn.Linear:
            layer.__class__ = RowLinear
    _READY.add(network)


def silu(x: Tensor) -> Tensor:
    """Compute F.silu, whose last numbers torch rounds otherwise on a CPU. (..., T, D) → same."""
    return each_sequence(lambda part: F.silu(part.contiguous()), x, torch.cat)


def is_on() -> bool:
    """Return True inside `independent_rows`."""
    return getattr(_HERE, "is_on", False)


def _keys() -> list[int]:
    return getattr(_HERE, "keys", [])


class RowLinear(nn.Linear):
    """nn.Linear, which computes as `linear` does. (..., D) → (..., N)."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear; inside `independent_rows` of few rows, inside `sequences_apart` of each sequence.

    (..., D) → (..., N).
    """
    if not is_on() or x.dtype != torch.float32 or weight.dtype != torch.float32:
        return each_sequence(lambda part: F.linear(part.contiguous(), weight, bias), x, torch.cat)
    rows, calls = x.reshape(-1, x.shape[-1]), _calls(*weight.shape, torch.get_num_threads())
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
def _calls(outputs: int, inputs: int, threads: int) -> Calls:
    """Choose the calls of a product with weights (outputs, inputs) on this machine, in so many threads."""
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0))

    def product(x: np.ndarray) -> np.ndarray:
        return F.linear(torch.from_numpy(x), weight).numpy()

    return first_independent([(product, inputs)], FOR_BATCHES) or FIXED[-1]


def takes(query: Tensor, mask: Tensor | None) -> bool:
    """Return True if `attend` is to compute attention with this mask."""
    if not is_on() or query.dtype != torch.float32 or query.dim() != 4:
        return False
    return mask is None or (mask.dtype == torch.bool and tuple(mask.shape[:-1]) == (len(query), 1, 1))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None,
    *,
    masked: bool = False,
    is_causal: bool = False,
) -> Tensor:
    """Attend with each row by itself; rows with as many keys together. (R, H, L, E) → same.

    Two products and a softmax: torch's kernel on a CPU has memory for each thread, and rounds by where that
    begins, so a row's numbers change with the thread that gets it.

    key, value: (R, K, S, E); H is a multiple of K.
    scale: 1/sqrt(E) if None.
    masked: rows see their first keys only, as many as `independent_rows` has.
    is_causal: query i sees keys <= i.
    """
    rows, heads, length, width = query.shape
    shared, most = key.shape[1], key.shape[2]
    query = query.reshape(rows, shared, -1, width) * (width**-0.5 if scale is None else scale)
    counts = [min(count, most) for count in _keys()] if masked else [most] * rows
    assert len(counts) == rows, f"{len(counts)} numbers of keys for {rows} rows"
    parts = list[Tensor]()
    for first, last, count in alike(counts):
        keys, values = (held[first:last, :, :count].flatten(0, 1) for held in (key, value))
        scores = torch.bmm(query[first:last].flatten(0, 1), keys.transpose(1, 2))
        if is_causal and length > 1:
            hidden = torch.ones(length, count, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden.repeat(heads // shared, 1), -torch.inf)
        parts.append(torch.bmm(scores.softmax(dim=-1), values))
    attended = parts[0] if len(parts) == 1 else torch.cat(parts)
    return attended.view(rows, heads, length, -1)
