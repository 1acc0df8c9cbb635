"""Qwen3-TTS's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.cuda.qwen3.slots import make_slots
from torch_ref.host import Host
from torch_ref.loading import Parts, open_parts
from torch_ref.qwen3.qwen3 import Qwen3
from torch_ref.qwen3.slots import fault
from tts_core.pipeline import check_model
from tts_core.qwen3 import pipeline
from tts_core.qwen3.engine import Qwen3Engine
from tts_core.qwen3.memory import check_loading


class Qwen3Pipeline(pipeline.Qwen3Pipeline):
    """Qwen3-TTS on this side, with its networks in `engine`."""

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        *,
        dtype: str | None = None,
        device: str | None = None,
        codec: str | Path | None = None,
        codec_precision: str | None = None,
    ) -> Qwen3Pipeline:
        """Load a Qwen3-TTS from published or converted files; arguments and errors as in `torch_ref.load`.

        Raises UsageError for files of another model.
        """
        parts = open_parts(path, dtype=dtype, device=device, codec=codec, codec_precision=codec_precision)
        check_model(parts.model, "qwen3")
        return assemble(parts)


def assemble(parts: Parts) -> Qwen3Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    check_loading(parts.configs, parts.machine())
    network, codec = parts.network("qwen3", Qwen3), parts.network("qwen3_codec", Qwen3Codec)
    host = Host(network.talker.codec_head)
    documents = parts.documents["qwen3"]
    return Qwen3Pipeline(Qwen3Engine(documents, network, codec, host, make_slots=make_slots, fault=fault))
