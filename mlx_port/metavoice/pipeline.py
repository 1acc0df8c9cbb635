"""MetaVoice's parts as a pipeline."""

from __future__ import annotations

import json

from mlx_port.host import Host
from mlx_port.loading import Parts
from mlx_port.memory import backend_name, free_bytes
from mlx_port.metavoice.codes import fill_codebooks
from mlx_port.metavoice.decoding import DiffusionDecoder, VocosDecoder
from mlx_port.metavoice.first_stage_loop import generate_tokens
from tts_core.metavoice.memory import check_loading
from tts_core.metavoice.pipeline import MetaVoicePipeline
from tts_core.metavoice.speaker_cache import SpeakerCache
from tts_core.metavoice.text import read_converted


def assemble(parts: Parts) -> MetaVoicePipeline:
    """The pipeline; EnCodec is read only where multi-band diffusion, which stands on it, is there too.

    Raises ResourceError, before weights are read, where memory would not hold it.
    """
    check_loading(
        parts.configs,
        dtype=parts.dtype_of("metavoice"),
        quantization=parts.quantization_of("metavoice"),
        backend=backend_name(),
        free=free_bytes(),
    )
    tables = {"first_stage": "metavoice", "second_stage": "metavoice_second_stage"}
    tokenizers = read_converted(
        {stage: json.loads(parts.documents[kind]["tokenizer.json"]) for stage, kind in tables.items()}
    )
    kinds = "metavoice", "metavoice_second_stage", "metavoice_speaker_encoder", "vocos"
    network, second_stage, speaker_encoder, vocoder = (parts.network(kind) for kind in kinds)
    decoders: dict[str, VocosDecoder | DiffusionDecoder] = {"vocos": VocosDecoder(vocoder)}
    if "mbd" in parts.configs:
        decoders["mbd"] = DiffusionDecoder(parts.network("encodec"), parts.network("mbd"))
    return MetaVoicePipeline(
        network,
        second_stage,
        speaker_encoder,
        tokenizers,
        SpeakerCache(),
        decoders,
        parts.configs,
        generate_tokens=generate_tokens,
        fill_codebooks=fill_codebooks,
        host=Host(network.transformer.wpe),
    )
