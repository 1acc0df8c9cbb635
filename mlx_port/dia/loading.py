"""Dia's parts as a pipeline."""

from __future__ import annotations

from mlx_port.codecs.dac import Dac
from mlx_port.dia.dia import Dia
from mlx_port.dia.loop import DiaLoop
from mlx_port.host import Host
from mlx_port.loading import Parts, understood
from mlx_port.memory import backend_name, free_bytes
from tts_core.dia.pipeline import DiaPipeline
from tts_core.dia.room import check_loading, codec_policy


def assemble(parts: Parts) -> DiaPipeline:
    """The pipeline; its codec works in windows that the memory left has room for.

    Raises ResourceError, before weights are read, where memory would not hold it.
    """

    def check(_: object) -> None:
        check_loading(
            parts.configs["dia"],
            parts.configs["dac"],
            dtype=parts.dtype_of("dia"),
            quantization=parts.quantization_of("dia"),
            backend=backend_name(),
            free=free_bytes(),
        )

    understood(check, {}, parts.folder)
    network, codec = parts.network("dia"), parts.network("dac")
    codec.policy = codec_policy(
        codec.config, dtype=parts.dtype_of("dia"), backend=backend_name(), free=free_bytes()
    )
    return compose(network, codec)


def compose(network: Dia, codec: Dac) -> DiaPipeline:
    """The pipeline of networks that are there."""
    host = Host(network.model.decoder.embeddings.embed)
    return DiaPipeline(network, codec, loop=DiaLoop(network, host), host=host)
