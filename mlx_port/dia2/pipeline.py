"""Dia2's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlx_port.dia2.decoder import fault, make_slots
from mlx_port.host import Host
from mlx_port.kernels.attention_support import try_long
from mlx_port.loading import Loaded
from mlx_port.steps.dia2.fused import concatenate_weights, fused
from mlx_port.steps.forms import try_kernels
from tts_core.dia2 import pipeline
from tts_core.dia2.net import Dia2Net
from tts_core.models import NONE, Documents


class Dia2Pipeline(Loaded, pipeline.Dia2Pipeline):
    """Dia2 on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE) -> Dia2Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind."""
    network = networks["dia2"]
    concatenate_weights(network)
    host = Host(network.transformer.text_embed.embedding)
    try_kernels(lambda: fused(network))
    heads = networks["mimi"].config
    try_long(heads.num_attention_heads, heads.num_key_value_heads, heads.head_dim, mx.float32)
    return Dia2Pipeline(Dia2Net(networks, documents, host, make_slots=make_slots, fault=fault))
