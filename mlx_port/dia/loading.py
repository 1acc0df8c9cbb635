"""Dia's parts as a pipeline."""

from __future__ import annotations

from mlx_port.dia.generate import DiaPipeline
from mlx_port.loading import Parts, understood
from mlx_port.memory import backend_name, free_bytes
from tts_core.room import check_loading, codec_policy


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
    return DiaPipeline(network, codec)
