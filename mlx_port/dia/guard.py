"""Trace NaN or infinity in Dia's logits to the layer that produced it."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.dia.dia import Dia
from mlx_port.guard import watched
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError


def fault(network: Dia, tokens: mx.array, rows: mx.array, *, guided: bool, text: int) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's rows again.

    tokens: (S,) ids of the text.
    rows: (1, T, C), the rows before the marked one.
    text: its position in the batch, from 1.
    """
    dtype = str(network.model.decoder.embeddings.embed.weight.dtype).removeprefix("mlx.core.")
    with watched(network) as found:
        source = network.read([tokens], network.encode_nothing() if guided else None)
        network.next_logits(mx.concatenate([rows, rows]) if guided else rows, network.new_cache(), source)
    return NotFiniteError(next(iter(found), None), dtype, text=text, row=rows.shape[1])
