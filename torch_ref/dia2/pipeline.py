"""Dia2's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ref.dia2.decoder import fault, make_slots
from torch_ref.host import Host
from torch_ref.loading import Loaded
from tts_core.dia2 import pipeline
from tts_core.dia2.net import Dia2Net
from tts_core.models import NONE, Documents


class Dia2Pipeline(Loaded, pipeline.Dia2Pipeline):
    """Dia2 on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE, **forms: Any) -> Dia2Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(networks["dia2"].transformer.text_embed.embedding)
    host.codec = networks["mimi"]
    how = {"make_slots": make_slots, "fault": fault} | forms
    return Dia2Pipeline(Dia2Net(networks, documents, host, **how))
