"""NaN and infinity: mark them in a step's ids, then trace them to the layer that produced them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tts_core.nn.sentinels import Sentinel

MARK = Sentinel.MARK  # replaces ids drawn from NaN or infinite logits


def marked(ids: Tensor, logits: Tensor) -> Tensor:
    """Set `ids` to -1 in all channels of a text whose logits are not all finite. Does not read the device.

    ids: (B, C).  logits: (R, C, V), R a multiple of B: conditional rows, then unconditional ones.
    """
    finite = logits.isfinite().flatten(1).all(1).unflatten(0, (-1, ids.shape[0])).all(0)
    return ids.masked_fill(~finite[:, None], MARK)


@contextmanager
def watched(network: torch.nn.Module) -> Iterator[list[str]]:
    """Collect names of layers that return NaN or infinity for finite inputs while the block runs, in call
    order: a layer after its parts, so that an overflow between the parts counts for the layer.
    """
    found: list[str] = []

    def hook(name: str) -> Any:
        def look(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if all(map(is_finite, inputs)) and not is_finite(output):
                found.append(name)

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in network.named_modules() if name]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def is_finite(x: Any) -> bool:
    """Return False for a floating array with NaN or infinity; anything else is True. Reads the device."""
    return not isinstance(x, Tensor) or not x.is_floating_point() or bool(x.isfinite().all())
