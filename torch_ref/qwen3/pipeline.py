"""Qwen3-TTS's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ref.host import Host
from torch_ref.loading import Loaded
from torch_ref.qwen3.decoder import fault, make_slots
from tts_core.models import NONE, Documents
from tts_core.qwen3 import pipeline
from tts_core.qwen3.net import Qwen3Net


class Qwen3Pipeline(Loaded, pipeline.Qwen3Pipeline):
    """Qwen3-TTS on this side, with its networks in `engine`."""


def compose(networks: Mapping[str, Any], documents: Documents = NONE, **forms: Any) -> Qwen3Pipeline:
    """Build the pipeline of loaded networks, with the texts of the parts that have some; both by kind.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(networks["qwen3"].talker.codec_head)
    host.codec = networks["qwen3_codec"]
    how = {"make_slots": make_slots, "fault": fault} | forms
    return Qwen3Pipeline(Qwen3Net(networks, documents, host, **how))
