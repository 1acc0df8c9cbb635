"""Dia2's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from typing import Any

from torch_ref.codecs.mimi import Mimi
from torch_ref.dia2.decoder import make_slots
from torch_ref.dia2.dia2 import Dia2
from torch_ref.dia2.guard import fault
from torch_ref.host import Host
from torch_ref.loading import Loaded, Parts
from tts_core.dia2 import pipeline
from tts_core.dia2.memory import check_loading
from tts_core.dia2.net import Dia2Net
from tts_core.dia2.tokenizer import FILE


class Dia2Pipeline(Loaded, pipeline.Dia2Pipeline):
    """Dia2 on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> Dia2Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    check_loading(parts.configs, parts.machine())
    network, codec = parts.network("dia2", Dia2), parts.network("mimi", Mimi)
    return compose(network, codec, parts.documents["dia2"][FILE], **Parts.fastest("dia2", codec))


def compose(network: Dia2, codec: Mimi, tokenizer: str, **forms: Any) -> Dia2Pipeline:
    """Build the pipeline of loaded networks.

    tokenizer: the text of its file.
    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(network.transformer.text_embed.embedding)
    host.codec = codec
    forms.setdefault("make_slots", make_slots)
    return Dia2Pipeline(Dia2Net({FILE: tokenizer}, network, codec, host, fault=fault, **forms))
