"""Dia's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx

from mlx_port.dia.decoder import fault, make_slots
from mlx_port.host import Host
from mlx_port.loading import Loaded
from mlx_port.steps.dia.fused import concatenate_weights, fused
from mlx_port.steps.forms import try_kernels
from tts_core.dia import pipeline
from tts_core.dia.net import DiaNet
from tts_core.models import NONE, Documents


class DiaPipeline(Loaded, pipeline.DiaPipeline):
    """Dia on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE) -> DiaPipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind."""
    network, codec = networks["dia"], networks["dac"]
    concatenate_weights(network)

    def decode(codes: mx.array) -> mx.array:
        audio = codec.decode_whole(codes)
        mx.async_eval(audio)  # all calls start before the first is read
        return audio

    host, empty = Host(network.model.decoder.embeddings.embed), network.encode_empty
    how = {"encode_empty": empty, "make_slots": make_slots, "fault": fault, "decode": decode}
    made = DiaPipeline(DiaNet(networks, documents, host, **how))
    try_kernels(lambda: fused(network, network.encode_empty()))
    return made
