"""Dia's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from typing import Any

import torch

from torch_ref.codecs.dac import Dac
from torch_ref.dia.decoder import make_slots
from torch_ref.dia.dia import Dia
from torch_ref.dia.guard import fault
from torch_ref.host import Host
from torch_ref.loading import Loaded, Parts
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
    check_loading(parts.configs, parts.machine())
    network, codec = parts.network("dia", Dia), parts.network("dac", Dac)
    codec.policy = codec_policy(codec.config, parts.machine())
    return compose(network, codec, read_rules(parts.documents["dia"]), **Parts.fastest("dia", codec))


def compose(network: Dia, codec: Dac, rules: TextRules = NO_RULES, **forms: Any) -> DiaPipeline:
    """Build the pipeline of loaded networks.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(network.model.decoder.embeddings.embed)
    host.codec = codec
    net = DiaNet(
        network,
        codec,
        host,
        encode_nothing=torch.inference_mode()(network.encode_nothing),
        fault=fault,
        rules=rules,
        **{"make_slots": make_slots, "decode": codec.decode_whole} | forms,
    )
    return DiaPipeline(net)
