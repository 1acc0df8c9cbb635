"""Parrot's parts as a pipeline."""

from __future__ import annotations

import torch

from torch_ref.codecs.dac import Dac
from torch_ref.host import Host
from torch_ref.loading import Parts
from torch_ref.parrot.parrot import Parrot
from tts_core.parrot.net import ParrotNet
from tts_core.parrot.pipeline import ParrotPipeline


def assemble(parts: Parts) -> ParrotPipeline:
    """Load all parts."""
    words = parts.documents["parrot"]["words.txt"]
    network, codec = parts.network("parrot", Parrot), parts.network("dac", Dac)

    @torch.inference_mode()
    def best(features: torch.Tensor) -> torch.Tensor:
        return network(features).argmax(dim=-1)

    return ParrotPipeline(ParrotNet(network, best, codec, words, Host(network.norm)))
