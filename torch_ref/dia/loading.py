"""Dia's parts as a pipeline."""

from __future__ import annotations

from torch_ref.codecs.dac import Dac
from torch_ref.device import name_of
from torch_ref.dia.dia import Dia
from torch_ref.dia.loop import DiaLoop
from torch_ref.host import Host
from torch_ref.loading import Parts
from torch_ref.memory import backend_name, free_bytes
from tts_core.dia.pipeline import DiaPipeline
from tts_core.dia.room import check_loading, codec_policy


def assemble(parts: Parts) -> DiaPipeline:
    """The pipeline; its codec works in windows that the memory left has room for.

    Raises ResourceError, before weights are read, where memory would not hold it.
    """
    check_loading(
        parts.configs["dia"],
        parts.configs["dac"],
        dtype=name_of(parts.dtype),
        backend=backend_name(parts.device),
        free=free_bytes(parts.device),
    )
    network, codec = parts.network("dia"), parts.network("dac")
    codec.policy = codec_policy(
        codec.config,
        dtype=name_of(parts.dtype),
        backend=backend_name(parts.device),
        free=free_bytes(parts.device),
    )
    return compose(network, codec)


def compose(network: Dia, codec: Dac) -> DiaPipeline:
    """The pipeline of networks that are there."""
    host = Host(network.model.decoder.embeddings.embed)
    return DiaPipeline(network, codec, loop=DiaLoop(network, host), host=host)
