"""MARS5's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlx_port.host import Host
from mlx_port.loading import Loaded
from mlx_port.mars5.decoder import make_slots
from mlx_port.mars5.reverse import ReverseDiffusion
from mlx_port.steps.forms import try_kernels
from mlx_port.steps.mars5.one_row import fused
from tts_core.mars5 import pipeline
from tts_core.mars5.net import Mars5Net
from tts_core.models import NONE, Documents


class Mars5Pipeline(Loaded, pipeline.Mars5Pipeline):
    """MARS5 on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE) -> Mars5Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind."""
    network, diffusion = networks["mars5"], ReverseDiffusion(networks["mars5_nar"])
    try_kernels(lambda: fused(network))
    host = Host(network.embed)
    return Mars5Pipeline(Mars5Net(networks, documents, host, diffusion=diffusion, make_slots=make_slots))
