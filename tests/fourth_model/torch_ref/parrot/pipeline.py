"""Parrot's parts as a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torch_ref.host import Host
from tts_core.models import Documents
from tts_core.parrot.net import ParrotNet
from tts_core.parrot.pipeline import ParrotPipeline


def compose(networks: Mapping[str, Any], documents: Documents) -> ParrotPipeline:
    """Build the pipeline."""
    network = networks["parrot"]

    @torch.inference_mode()
    def best(features: torch.Tensor) -> torch.Tensor:
        return network(features).argmax(dim=-1)

    how: dict[str, Any] = {"best": best, "make_slots": None}
    return ParrotPipeline(ParrotNet(networks, documents, Host(network.norm), **how))
