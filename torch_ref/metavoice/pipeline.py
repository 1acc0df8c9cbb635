"""MetaVoice's pipeline on this side, loaded from files or built from networks."""

from __future__ import annotations

from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.mbd import MultiBandDiffusion
from torch_ref.codecs.vocos import Vocos
from torch_ref.host import Host
from torch_ref.loading import Loaded, Parts
from torch_ref.metavoice.codes import fill_codebooks
from torch_ref.metavoice.first_stage import FirstStage
from torch_ref.metavoice.guidance import fault
from torch_ref.metavoice.second_stage import SecondStage
from torch_ref.metavoice.speaker_encoder import SpeakerEncoder
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
        fill_codebooks=fill_codebooks,
        fault=fault,
        **Parts.fastest("metavoice"),
    )
    return MetaVoicePipeline(engine)
