"""Dia's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_ref.dia.decoder import fault, make_slots
from torch_ref.host import Host
from torch_ref.loading import Loaded
from tts_core.dia import pipeline
from tts_core.dia.net import DiaNet
from tts_core.models import NONE, Documents


class DiaPipeline(Loaded, pipeline.DiaPipeline):
    """Dia on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE, **forms: Any) -> DiaPipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    network, codec = networks["dia"], networks["dac"]
    host = Host(network.model.decoder.embeddings.embed)
    host.codec, empty = codec, torch.inference_mode()(network.encode_empty)
    how = {"make_slots": make_slots, "decode": codec.decode_whole, "fault": fault} | forms
    return DiaPipeline(DiaNet(networks, documents, host, encode_empty=empty, **how))
