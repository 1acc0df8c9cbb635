"""MARS5's parts as a pipeline."""

from __future__ import annotations

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.vocos import Vocos
from mlx_port.host import Host
from mlx_port.loading import Parts, understood
from mlx_port.mars5.ar_loop import extend
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.residual_transformer import ResidualTransformer
from mlx_port.mars5.reverse import ReverseDiffusion
from mlx_port.memory import backend_name, free_bytes
from tts_core.mars5.memory import check_loading
from tts_core.mars5.pipeline import Mars5Pipeline
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary


def assemble(parts: Parts) -> Mars5Pipeline:
    """The pipeline. Raises ResourceError, before weights are read, where memory would not hold it."""

    def check(_: object) -> None:
        check_loading(
            parts.configs,
            dtype=parts.dtype_of("mars5"),
            backend=backend_name(),
            free=free_bytes(),
            quantization=parts.quantization_of("mars5"),
        )

    understood(check, {}, parts.folder)
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
