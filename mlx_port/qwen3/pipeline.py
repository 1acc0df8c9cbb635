"""Qwen3-TTS's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlx_port.host import Host
from mlx_port.kernels.attention_support import try_long
from mlx_port.loading import Loaded
from mlx_port.qwen3.decoder import fault, make_slots
from mlx_port.steps.forms import try_kernels
from mlx_port.steps.qwen3.fused import fused
from tts_core.models import NONE, Documents
from tts_core.qwen3 import pipeline
from tts_core.qwen3.net import Qwen3Net


class Qwen3Pipeline(Loaded, pipeline.Qwen3Pipeline):
    """Qwen3-TTS on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE) -> Qwen3Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind."""
    network, codec = networks["qwen3"], networks["qwen3_codec"].config
    try_kernels(lambda: fused(network))
    for heads in (codec.encoder, codec.decoder):
        try_long(heads.num_attention_heads, heads.num_key_value_heads, heads.head_dim, mx.float32)
    host = Host(network.talker.model.codec_embedding)
    return Qwen3Pipeline(Qwen3Net(networks, documents, host, make_slots=make_slots, fault=fault))
