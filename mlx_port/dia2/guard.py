"""Trace NaN or infinity in Dia2's logits to the layer that produced it."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.dia2.dia2 import Dia2
from mlx_port.guard import watched
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError


def fault(network: Dia2, tokens: mx.array, text: tuple[int, int]) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's steps again.

    tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
    """
    transformer, depformer = network.transformer, network.depformer
    dtype = str(transformer.text_embed.embedding.weight.dtype).removeprefix("mlx.core.")
    with watched(network) as found:
        hidden = transformer(tokens[None], 0, transformer.new_cache())[:, -1]
        transformer.actions(hidden)
        previous = mx.minimum(transformer.codes(hidden).argmax(axis=-1), depformer.codebook_size - 1)
        main, second = (mx.array([each]) for each in text)
        cache = depformer.new_cache()
        for stage in range(len(depformer.stage_sets)):
            previous = depformer(stage, hidden, previous, (main, second), cache).argmax(axis=-1)
    return NotFiniteError(next(iter(found), None), dtype, text=1, row=tokens.shape[0])
