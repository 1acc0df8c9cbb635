"""Trace NaN or infinity in Dia's logits to the layer that it comes from."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.device import name_of
from torch_ref.dia.dia import Dia
from torch_ref.guard import watched
from tts_core.errors import GenerationError
from tts_core.nn.guard import not_finite


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
