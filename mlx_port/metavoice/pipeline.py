"""MetaVoice's pipeline on this side, loaded from files or built from networks."""

from __future__ import annotations

from mlx_port.codecs.encodec import Encodec
from mlx_port.codecs.mbd import MultiBandDiffusion
from mlx_port.codecs.vocos import Vocos
from mlx_port.host import Host
from mlx_port.loading import Loaded, Parts
from mlx_port.metavoice.codes import fill_codebooks
from mlx_port.metavoice.decoder import make_slots
from mlx_port.metavoice.first_stage import FirstStage
from mlx_port.metavoice.guidance import fault
from mlx_port.metavoice.second_stage import SecondStage
from mlx_port.metavoice.speaker_encoder import SpeakerEncoder
from mlx_port.steps.metavoice.one_row import try_kernels
from tts_core.metavoice import pipeline
from tts_core.metavoice.memory import check_loading
from tts_core.metavoice.net import MetaVoiceNet
from tts_core.metavoice.text import read_tokenizers


class MetaVoicePipeline(Loaded, pipeline.MetaVoicePipeline):
    """MetaVoice on this side, with its networks in `engine`."""


def assemble(parts: Parts) -> MetaVoicePipeline:
    """Build the pipeline; EnCodec is loaded only together with multi-band diffusion, which needs it.

    Raises ResourceError, before weights are read, for too little memory.
    """
    check_loading(parts.configs, parts.machine())
    tokenizers = read_tokenizers(parts.documents)
    network = parts.network("metavoice", FirstStage)
    second_stage = parts.network("metavoice_second_stage", SecondStage)
    speaker_encoder = parts.network("metavoice_speaker_encoder", SpeakerEncoder)
    vocoder, diffusion = parts.network("vocos", Vocos), None
    if "mbd" in parts.configs:
        diffusion = parts.network("encodec", Encodec), parts.network("mbd", MultiBandDiffusion)
    engine = MetaVoiceNet(
        parts.configs,
        tokenizers,
        network,
        second_stage,
        speaker_encoder,
        vocoder,
        diffusion,
        Host(network.transformer.wpe),
        make_slots=make_slots,
        fill_codebooks=fill_codebooks,
        fault=fault,
    )
    try_kernels(network)
    return MetaVoicePipeline(engine)
