"""Dia2's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.codecs.mimi import Mimi
from mlx_port.dia2.decoder import make_slots
from mlx_port.dia2.dia2 import Dia2
from mlx_port.dia2.guard import fault
from mlx_port.host import Host
from mlx_port.kernels.attention_support import try_long
from mlx_port.loading import Loaded, Parts
from mlx_port.steps.dia2.fused import join, try_kernels
from mlx_port.stored import understood
from tts_core.dia2 import pipeline
from tts_core.dia2.memory import check_loading
from tts_core.dia2.net import Dia2Net
from tts_core.dia2.tokenizer import FILE


class Dia2Pipeline(Loaded, pipeline.Dia2Pipeline):
    """Dia2 on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> Dia2Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    understood(lambda _: check_loading(parts.configs, parts.machine()), {}, parts.folder)
    network, codec = parts.network("dia2", Dia2), parts.network("mimi", Mimi)
    pipeline = compose(network, codec, parts.documents["dia2"][FILE])
    try_kernels(network)
    heads = codec.config
    try_long(heads.num_attention_heads, heads.num_key_value_heads, heads.head_dim, mx.float32)
    return pipeline


def compose(network: Dia2, codec: Mimi, tokenizer: str) -> Dia2Pipeline:
    """Build the pipeline of loaded networks. tokenizer: the text of its file."""
    join(network)
    host = Host(network.transformer.text_embed.embedding)
    return Dia2Pipeline(Dia2Net({FILE: tokenizer}, network, codec, host, make_slots=make_slots, fault=fault))
