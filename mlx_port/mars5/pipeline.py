"""MARS5's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.vocos import Vocos
from mlx_port.host import Host
from mlx_port.loading import Loaded, Parts
from mlx_port.mars5.codec_lm import CodecLM
from mlx_port.mars5.decoder import make_slots
from mlx_port.mars5.residual_transformer import ResidualTransformer
from mlx_port.mars5.reverse import ReverseDiffusion
from mlx_port.steps.mars5.one_row import try_kernels
from mlx_port.stored import understood
from tts_core.config import config_of
from tts_core.mars5 import pipeline
from tts_core.mars5.config import CodecLMConfig
from tts_core.mars5.memory import check_loading
from tts_core.mars5.net import Mars5Net
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary


class Mars5Pipeline(Loaded, pipeline.Mars5Pipeline):
    """MARS5 on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> Mars5Pipeline:
    """Build the pipeline. Raises ResourceError, before weights are read, for too little memory."""
    understood(lambda _: check_loading(parts.configs, parts.machine()), {}, parts.folder)
    texts, ids = parts.documents["mars5"], config_of(parts.configs, "mars5", CodecLMConfig).vocab_size
    vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE], vocab_size=ids)
    network = parts.network("mars5", CodecLM)
    pipeline = compose(
        network,
        parts.network("mars5_nar", ResidualTransformer),
        parts.network("encodec", Encodec),
        parts.network("vocos", Vocos),
        vocabulary,
    )
    try_kernels(network)
    return pipeline


def compose(
    network: CodecLM,
    transformer: ResidualTransformer,
    codec: Encodec,
    vocoder: Vocos,
    vocabulary: CodecVocabulary,
) -> Mars5Pipeline:
    """Build the pipeline of loaded networks."""
    engine = Mars5Net(
        network,
        ReverseDiffusion(transformer),
        codec,
        vocoder,
        vocabulary,
        Host(network.embed),
        make_slots=make_slots,
    )
    return Mars5Pipeline(engine)
