"""MARS5's parts as a pipeline."""

from __future__ import annotations

from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.vocos import Vocos
from torch_ref.device import name_of
from torch_ref.host import Host
from torch_ref.loading import Parts
from torch_ref.mars5.ar_loop import extend
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import ReverseDiffusion
from torch_ref.memory import backend_name, free_bytes
from tts_core.mars5.memory import check_loading
from tts_core.mars5.pipeline import Mars5Pipeline
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary


def assemble(parts: Parts) -> Mars5Pipeline:
    """The pipeline. Raises ResourceError, before weights are read, where memory would not hold it."""
    check_loading(
        parts.configs,
        dtype=name_of(parts.dtype),
        backend=backend_name(parts.device),
        free=free_bytes(parts.device),
    )
    texts = parts.documents["mars5"]
    vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE])
    kinds = "mars5", "mars5_nar", "encodec", "vocos"
    network, transformer, codec, vocoder = (parts.network(kind) for kind in kinds)
    return compose(network, transformer, codec, vocoder, vocabulary)


def compose(
    network: CodecLM,
    transformer: ResidualTransformer,
    codec: Encodec,
    vocoder: Vocos,
    vocabulary: CodecVocabulary,
) -> Mars5Pipeline:
    """The pipeline of networks that are there."""
    return Mars5Pipeline(
        network,
        transformer,
        codec,
        vocoder,
        vocabulary,
        extend=extend,
        diffusion=ReverseDiffusion(transformer),
        host=Host(network.embed),
    )
