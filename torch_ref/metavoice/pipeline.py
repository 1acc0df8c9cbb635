"""MetaVoice's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ref.host import Host
from torch_ref.loading import Loaded
from torch_ref.metavoice.codes import fill_codebooks
from torch_ref.metavoice.decoder import make_slots
from torch_ref.metavoice.guidance import fault
from tts_core.metavoice import pipeline
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.models import NONE, Documents


class MetaVoicePipeline(Loaded, pipeline.MetaVoicePipeline):
    """MetaVoice on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE, **forms: Any) -> MetaVoicePipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(networks["metavoice"].transformer.wpe)
    how = {"make_slots": make_slots, "fill_codebooks": fill_codebooks, "fault": fault} | forms
    return MetaVoicePipeline(MetaVoiceNet(networks, documents, host, **how))
