"""Qwen3-TTS's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx

from mlx_port.codecs.qwen3_codec import Qwen3Codec
from mlx_port.host import Host
from mlx_port.kernels.attention_support import try_long
from mlx_port.loading import Loaded, Parts
from mlx_port.qwen3.decoder import fault, make_slots
from mlx_port.qwen3.qwen3 import Qwen3
from mlx_port.steps.qwen3.fused import try_kernels
from tts_core.qwen3 import pipeline
from tts_core.qwen3.memory import check_loading
from tts_core.qwen3.net import Qwen3Net


class Qwen3Pipeline(Loaded, pipeline.Qwen3Pipeline):
    """Qwen3-TTS on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> Qwen3Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    check_loading(parts.configs, parts.machine())
    network, codec = parts.network("qwen3", Qwen3), parts.network("qwen3_codec", Qwen3Codec)
    try_kernels(network)
    for heads in (codec.config.encoder, codec.config.decoder):
        try_long(heads.num_attention_heads, heads.num_key_value_heads, heads.head_dim, mx.float32)
    return compose(network, codec, parts.documents["qwen3"])


def compose(network: Qwen3, codec: Qwen3Codec, documents: Mapping[str, str]) -> Qwen3Pipeline:
    """Build the pipeline of loaded networks. documents: the model's own, by name."""
    host = Host(network.talker.model.codec_embedding)
    return Qwen3Pipeline(Qwen3Net(documents, network, codec, host, make_slots=make_slots, fault=fault))
