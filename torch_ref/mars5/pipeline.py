"""MARS5's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ref.host import Host
from torch_ref.loading import Loaded
from torch_ref.mars5.decoder import make_slots
from torch_ref.mars5.reverse import DenoisingStep, ReverseDiffusion
from tts_core.mars5 import pipeline
from tts_core.mars5.net import Mars5Net
from tts_core.models import NONE, Documents


class Mars5Pipeline(Loaded, pipeline.Mars5Pipeline):
    """MARS5 on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE, **forms: Any) -> Mars5Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    how = {"make_slots": make_slots, "make_step": DenoisingStep} | forms
    diffusion, host = (
        ReverseDiffusion(networks["mars5_nar"], how.pop("make_step")),
        Host(networks["mars5"].embed),
    )
    return Mars5Pipeline(Mars5Net(networks, documents, host, diffusion=diffusion, **how))
