"""NaN and infinity: marked in the ids that a step gives, then traced to the layer that they come from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from torch_ref.device import name_of
from torch_ref.dia.dia import Dia
from tts_core.errors import GenerationError
from tts_core.nn.guard import not_finite

MARK = -1  # in the place of ids that were drawn from logits which are no numbers


def marked(ids: Tensor, logits: Tensor) -> Tensor:
    """`ids` with -1 in all channels of a text whose logits are not all finite. Reads nothing.

    ids: (B, C).  logits: (R, C, V), R a multiple of B: conditional rows, then unconditional ones.
    """
    finite = logits.isfinite().flatten(1).all(1).unflatten(0, (-1, ids.shape[0])).all(0)
    return ids.masked_fill(~finite[:, None], MARK)


def fault(network: Dia, tokens: Tensor, rows: Tensor, *, guided: bool, text: int) -> GenerationError:
    """The error that names the first layer with NaN or infinity, found by running a text's rows again, alone.

    tokens: (S,) ids of the text.  rows: (1, T, C), the rows before the one that was marked.
    text: its place in the batch, from 1.
    """
    dtype = name_of(network.model.decoder.embeddings.embed.weight.dtype)
    with watched(network) as found, torch.inference_mode():
        source = network.read([tokens], network.encode_nothing() if guided else None)
        network.next_logits(torch.cat((rows, rows)) if guided else rows, network.new_cache(), source)
    return not_finite(next(iter(found), None), dtype, text=text, row=rows.shape[1])


@contextmanager
def watched(network: torch.nn.Module) -> Iterator[list[str]]:
    """Names of layers that give NaN or infinity for finite inputs while the block runs, in the order of their
    calls: a layer after its parts, so that an overflow between the parts is the layer's own.
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
    """Whether no number of a floating array is NaN or infinite; anything else passes. Reads the device."""
    return not isinstance(x, Tensor) or not x.is_floating_point() or bool(x.isfinite().all())
