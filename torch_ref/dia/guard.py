"""Trace NaN or infinity in Dia's logits to the layer that produced it."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.device import name_of
from torch_ref.dia.dia import Dia
from torch_ref.guard import watched
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError


def fault(network: Dia, tokens: Tensor, rows: Tensor, *, guided: bool, text: int) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's rows again.

    tokens: (S,) ids of the text.
    rows: (1, T, C), the rows before the marked one.
    text: its position in the batch, from 1.
    """
    dtype = name_of(network.model.decoder.embeddings.embed.weight.dtype)
    with watched(network) as found, torch.inference_mode():
        source = network.read([tokens], network.encode_nothing() if guided else None)
        network.next_logits(torch.cat((rows, rows)) if guided else rows, network.new_cache(), source)
    return NotFiniteError(next(iter(found), None), dtype, text=text, row=rows.shape[1])
