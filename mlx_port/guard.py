"""NaN and infinity: mark them in a step's ids, then trace them to the layer that produced them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
from mlx import nn

from tts_core.nn.sentinels import Sentinel

MARK = Sentinel.MARK  # replaces ids drawn from NaN or infinite logits


def marked(ids: mx.array, logits: mx.array) -> mx.array:
    """Set `ids` to -1 in all channels of a text whose logits are not all finite. Does not read the device.

    ids: (B, C).  logits: (R, C, V), R a multiple of B: conditional rows, then unconditional ones.
    """
    finite = mx.isfinite(logits).all(axis=(1, 2)).reshape(-1, ids.shape[0]).all(axis=0)
    return mx.where(finite[:, None], ids.astype(mx.int32), MARK)


@contextmanager
def watched(network: nn.Module) -> Iterator[list[str]]:
    """Collect names of layers that return NaN or infinity for finite inputs while the block runs, in call
    order: a layer after its parts, so that an overflow between the parts counts for the layer.

    MLX has no hooks: in the block, the layers' classes call a function that checks this network's layers.
    """
    found: list[str] = []
    names = {id(module): name for name, module in network.named_modules() if name}
    kinds = {kind for module in network.modules() for kind in type(module).__mro__}
    calls: dict[Any, Any] = {kind: vars(kind)["__call__"] for kind in kinds if "__call__" in vars(kind)}

    def looking(call: Any) -> Any:
        def look(module: Any, *inputs: Any) -> Any:
            output = call(module, *inputs)
            if id(module) in names and all(map(is_finite, inputs)) and not is_finite(output):
                found.append(names[id(module)])
            return output

        return look

    for kind, call in calls.items():
        kind.__call__ = looking(call)
    try:
        yield found
    finally:
        for kind, call in calls.items():
            kind.__call__ = call


def is_finite(x: Any) -> bool:
    """Return False for a floating array with NaN or infinity; anything else is True. Reads the device."""
    floating = isinstance(x, mx.array) and mx.issubdtype(x.dtype, mx.floating)
    return not floating or bool(mx.isfinite(x).all().item())
