"""Parrot's parts as a pipeline."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.codecs.dac import Dac
from mlx_port.host import Host
from mlx_port.loading import Parts
from mlx_port.parrot.parrot import Parrot
from tts_core.parrot.net import ParrotNet
from tts_core.parrot.pipeline import ParrotPipeline


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    network, codec = parts.network("parrot", Parrot), parts.network("dac", Dac)

    def best(features: mx.array) -> mx.array:
        return mx.argmax(network(features), axis=-1)

    return ParrotPipeline(ParrotNet(network, best, codec, words, Host(network.norm)))
