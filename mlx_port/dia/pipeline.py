"""Dia's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

import mlx.core as mx

from mlx_port.codecs.dac import Dac
from mlx_port.dia.decoder import make_slots
from mlx_port.dia.dia import Dia
from mlx_port.dia.guard import fault
from mlx_port.host import Host
from mlx_port.loading import Loaded, Parts
from mlx_port.steps.dia.fused import join, try_kernels
from mlx_port.stored import understood
from tts_core.codecs.dac_memory import codec_policy
from tts_core.dia import pipeline
from tts_core.dia.memory import check_loading
from tts_core.dia.net import DiaNet
from tts_core.text.rules import NO_RULES, TextRules, read_rules


class DiaPipeline(Loaded, pipeline.DiaPipeline):
    """Dia on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> DiaPipeline:
    """Build the pipeline; its codec uses windows that fit the remaining memory.

    Raises ResourceError, before weights are read, for too little memory.
    """
    understood(lambda _: check_loading(parts.configs, parts.machine()), {}, parts.folder)
    network, codec = parts.network("dia", Dia), parts.network("dac", Dac)
    codec.policy = codec_policy(codec.config, parts.machine())
    pipeline = compose(network, codec, read_rules(parts.documents["dia"]))
    try_kernels(network)
    return pipeline


def compose(network: Dia, codec: Dac, rules: TextRules = NO_RULES) -> DiaPipeline:
    """Build the pipeline of loaded networks."""
    join(network)

    def decode(codes: mx.array) -> mx.array:
        audio = codec.decode_whole(codes)
        mx.async_eval(audio)  # all calls start before the first is read
        return audio

    net = DiaNet(
        network,
        codec,
        Host(network.model.decoder.embeddings.embed),
        encode_nothing=network.encode_nothing,
        make_slots=make_slots,
        fault=fault,
        rules=rules,
        decode=decode,
    )
    return DiaPipeline(net)
