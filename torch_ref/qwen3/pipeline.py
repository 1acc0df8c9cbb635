"""Qwen3-TTS's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.host import Host
from torch_ref.loading import Loaded, Parts
from torch_ref.qwen3.decoder import fault, make_slots
from torch_ref.qwen3.qwen3 import Qwen3
from tts_core.qwen3 import pipeline
from tts_core.qwen3.memory import check_loading
from tts_core.qwen3.net import Qwen3Net


class Qwen3Pipeline(Loaded, pipeline.Qwen3Pipeline):
    """Qwen3-TTS on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> Qwen3Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    check_loading(parts.configs, parts.machine())
    network, codec = parts.network("qwen3", Qwen3), parts.network("qwen3_codec", Qwen3Codec)
    return compose(network, codec, parts.documents["qwen3"], **Parts.fastest("qwen3", codec))


def compose(network: Qwen3, codec: Qwen3Codec, documents: Mapping[str, str], **forms: Any) -> Qwen3Pipeline:
    """Build the pipeline of loaded networks.

    documents: the model's own, by name.
    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    host = Host(network.talker.codec_head)
    host.codec = codec
    forms.setdefault("make_slots", make_slots)
    return Qwen3Pipeline(Qwen3Net(documents, network, codec, host, fault=fault, **forms))
