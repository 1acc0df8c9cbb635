"""Trace NaN or infinity in Dia2's logits to the layer that produced it."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.device import name_of
from torch_ref.dia2.dia2 import Dia2
from torch_ref.guard import watched
from tts_core.errors import GenerationError
from tts_core.nn.guard import NotFiniteError


def fault(network: Dia2, tokens: Tensor, text: tuple[int, int]) -> GenerationError:
    """Build the error that names the first layer with NaN or infinity, by running a text's steps again.

    tokens: (T, 2 + Q), all inputs so far.  text: ids of both streams after the last step.
    """
    transformer, depformer = network.transformer, network.depformer
    dtype = name_of(transformer.text_embed.embedding.weight.dtype)
    with watched(network) as found, torch.inference_mode():
        hidden = transformer(tokens[None], 0, transformer.new_cache())[:, -1]
        transformer.actions(hidden)
        previous = transformer.codes(hidden).argmax(dim=-1).clamp(max=depformer.codebook_size - 1)
        main, second = (previous.new_full((1,), each) for each in text)
        cache = depformer.new_cache()
        for stage in range(len(depformer.stage_sets)):
            previous = depformer(stage, hidden, previous, (main, second), cache).argmax(dim=-1)
    return NotFiniteError(next(iter(found), None), dtype, text=1, row=tokens.shape[0])
