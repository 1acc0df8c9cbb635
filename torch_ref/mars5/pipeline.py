"""MARS5's pipeline on this side, loaded from a folder or built from networks."""

from __future__ import annotations

from typing import Any

from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.vocos import Vocos
from torch_ref.host import Host
from torch_ref.loading import Loaded, Parts
from torch_ref.mars5.codec_lm import CodecLM
from torch_ref.mars5.decoder import make_slots
from torch_ref.mars5.residual_transformer import ResidualTransformer
from torch_ref.mars5.reverse import DenoisingStep, ReverseDiffusion
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
    check_loading(parts.configs, parts.machine())
    texts, ids = parts.documents["mars5"], config_of(parts.configs, "mars5", CodecLMConfig).vocab_size
    vocabulary = CodecVocabulary.read(texts[TEXT_FILE], texts[SPEECH_FILE], vocab_size=ids)
    return compose(
        parts.network("mars5", CodecLM),
        parts.network("mars5_nar", ResidualTransformer),
        parts.network("encodec", Encodec),
        parts.network("vocos", Vocos),
        vocabulary,
        **Parts.fastest("mars5"),
    )


def compose(
    network: CodecLM,
    transformer: ResidualTransformer,
    codec: Encodec,
    vocoder: Vocos,
    vocabulary: CodecVocabulary,
    **forms: Any,
) -> Mars5Pipeline:
    """Build the pipeline of loaded networks.

    forms: of what runs, from `Parts.fastest`; plain ones unless given.
    """
    engine = Mars5Net(
        network,
        ReverseDiffusion(transformer, forms.get("make_step", DenoisingStep)),
        codec,
        vocoder,
        vocabulary,
        Host(network.embed),
        make_slots=forms.get("make_slots", make_slots),
    )
    return Mars5Pipeline(engine)
