"""MetaVoice's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlx_port.host import Host
from mlx_port.loading import Loaded
from mlx_port.metavoice.codes import fill_codebooks
from mlx_port.metavoice.decoder import make_slots
from mlx_port.metavoice.guidance import fault
from mlx_port.steps.forms import try_kernels
from mlx_port.steps.metavoice.one_row import fused
from tts_core.metavoice import pipeline
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.models import NONE, Documents


class MetaVoicePipeline(Loaded, pipeline.MetaVoicePipeline):
    """MetaVoice on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE) -> MetaVoicePipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind."""
    host, network = Host(networks["metavoice"].transformer.wpe), networks["metavoice"]
    how = {"make_slots": make_slots, "fill_codebooks": fill_codebooks, "fault": fault}
    made = MetaVoicePipeline(MetaVoiceNet(networks, documents, host, **how))
    try_kernels(lambda: fused(network))
    return made
