"""Which networks a model is made of, where a converted folder holds each, and what may be done to it.

KINDS has one entry a kind of network, MODELS one a model. A kind's name is also the `model_type` in the
config.json of its part of a converted folder; the root's is that of the model.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts_core.codecs import dac, encodec, mbd, vocos
from tts_core.dia import config as dia
from tts_core.dia import shapes as dia_shapes
from tts_core.errors import CheckpointError
from tts_core.mars5 import config as mars5
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary
from tts_core.metavoice import config as metavoice
from tts_core.metavoice import text as metavoice_text

Shapes = dict[str, tuple[int, ...]]
Axes = tuple[int, ...]
Configs = Mapping[str, Any]  # kind → configuration
Documents = Mapping[str, Mapping[str, str]]  # kind → name → text

MARS5_TOKENIZERS = (TEXT_FILE, SPEECH_FILE)


def _always(name: str) -> bool:
    return True


def _never(name: str) -> bool:
    return False


def _no_axes(config: Any, name: str, rank: int) -> None:
    return None


def _axes_by_name(axes: Callable[[str, int], Axes | None]) -> Callable[[Any, str, int], Axes | None]:
    """Where the configuration does not matter."""
    return lambda config, name, rank: axes(name, rank)


@dataclass(frozen=True)
class Kind:
    """A kind of network. Names are canonical ones; shapes are in PyTorch's axis order."""

    title: str  # in messages
    folder: str  # inside a converted folder; "" is the root
    network: str  # module and class, the same on both sides
    parameter_shapes: Callable[[Any], Shapes]  # of its configuration
    read_converted: Callable[[Mapping[str, Any]], Any]  # its configuration, from our own schema
    stays_float32: Callable[[str], bool] = _always  # whatever the dtype that is asked for
    is_large: Callable[[str], bool] = _never  # the linear layers that quantising takes
    mlx_axes: Callable[[Any, str, int], Axes | None] = _no_axes  # configuration, name, rank → order or None
    documents: tuple[str, ...] = ()  # texts beside config.json: tokenizers
    pieces: str | None = None  # prefix of the names of piece {}: the network reads itself piece by piece
    license: str | None = None  # of the published weights, as the hub writes it; None: see their own card

    @property
    def takes_dtype(self) -> bool:
        """Whether any of its tensors follows the dtype that is asked for."""
        return self.stays_float32 is not _always


@dataclass(frozen=True)
class Model:
    """What is made of parts. `own` tells it from others: the kinds that no other model has."""

    title: str
    own: tuple[str, ...]
    parts: tuple[str, ...]  # all that it needs, in the order in which they are written
    check: Callable[[Configs, Documents], None]  # raises CheckpointError for parts that do not fit
    call: str  # of the command `mlx-port generate`, behind its --model: an example
    extras: tuple[str, ...] = ()  # parts that may be left out, and are unless asked for

    def wanted(self, extras: Sequence[str]) -> tuple[str, ...]:
        """Its parts, and those extras that are asked for."""
        return (*self.parts, *(kind for kind in self.extras if kind in extras))


def is_large_in_dia(name: str) -> bool:
    """What a decoding step reads. Embeddings stay, as a step reads single rows of them."""
    return name.endswith(("_proj.weight", "logits_dense.weight"))


_AR_LAYERS = re.compile(r"ar\.layers\.\d+\.(attention|feed_forward)\.w\w\.weight")
# the speaker encoder runs once a reference
_NAR_LAYERS = re.compile(
    r"tfm\.(encoder|decoder)\.layers\.\d+\.(\w+\.(in|out)_proj|linear2|activation\.[VW])\.weight"
)


def _check_dia(configs: Configs, documents: Documents) -> None:
    decoder = configs["dia"].decoder_config
    dac.check_fits(configs["dac"], decoder.num_channels, configs["dia"].eos_token_id)


KINDS = {
    "dia": Kind(
        title="Dia",
        folder="",
        network="dia.dia:Dia",
        parameter_shapes=dia_shapes.parameter_shapes,
        read_converted=dia.read_converted,
        stays_float32=dia_shapes.is_norm,
        is_large=is_large_in_dia,
    ),
    "dac": Kind(
        title="DAC (the codec)",
        folder="codec",
        network="codecs.dac:Dac",
        parameter_shapes=dac.parameter_shapes,
        read_converted=dac.read_converted,
        mlx_axes=_axes_by_name(dac.mlx_axes),
    ),
    "mars5": Kind(
        title="MARS5 (AR)",
        folder="",
        network="mars5.codec_lm:CodecLM",
        parameter_shapes=mars5.codec_lm_parameter_shapes,
        read_converted=mars5.read_converted_codec_lm,
        stays_float32=mars5.is_norm,
        is_large=lambda name: _AR_LAYERS.fullmatch(name) is not None,
        documents=MARS5_TOKENIZERS,
        license="agpl-3.0",
    ),
    "mars5_nar": Kind(
        title="MARS5 (NAR)",
        folder="nar",
        network="mars5.residual_transformer:ResidualTransformer",
        parameter_shapes=mars5.residual_transformer_parameter_shapes,
        read_converted=mars5.read_converted_residual_transformer,
        stays_float32=mars5.is_norm,
        is_large=lambda name: _NAR_LAYERS.fullmatch(name) is not None,
        license="agpl-3.0",
    ),
    "metavoice": Kind(
        title="MetaVoice (first stage)",
        folder="",
        network="metavoice.first_stage:FirstStage",
        parameter_shapes=metavoice.first_stage_parameter_shapes,
        read_converted=metavoice.read_converted_first_stage,
        stays_float32=_never,
        is_large=metavoice.is_quantisable,
        documents=("tokenizer.json",),
        license="apache-2.0",
    ),
    "metavoice_second_stage": Kind(
        title="MetaVoice (second stage)",
        folder="second_stage",
        network="metavoice.second_stage:SecondStage",
        parameter_shapes=metavoice.second_stage_parameter_shapes,
        read_converted=metavoice.read_converted_second_stage,
        documents=("tokenizer.json",),
        license="apache-2.0",
    ),
    "metavoice_speaker_encoder": Kind(
        title="MetaVoice (speaker encoder)",
        folder="speaker_encoder",
        network="metavoice.speaker_encoder:SpeakerEncoder",
        parameter_shapes=metavoice.speaker_encoder_parameter_shapes,
        read_converted=metavoice.read_converted_speaker_encoder,
        license="apache-2.0",
    ),
    "encodec": Kind(
        title="EnCodec (the codec)",
        folder="codec",
        network="codecs.encodec:Encodec",
        parameter_shapes=encodec.parameter_shapes,
        read_converted=encodec.read_converted,
        mlx_axes=encodec.mlx_axes,
    ),
    "vocos": Kind(
        title="Vocos (the vocoder)",
        folder="vocoder",
        network="codecs.vocos:Vocos",
        parameter_shapes=vocos.parameter_shapes,
        read_converted=vocos.read_converted,
        mlx_axes=_axes_by_name(vocos.mlx_axes),
        license="mit",
    ),
    "mbd": Kind(
        title="MBD (multi-band diffusion)",
        folder="mbd",
        network="codecs.mbd:MultiBandDiffusion",
        parameter_shapes=mbd.parameter_shapes,
        read_converted=mbd.read_converted,
        mlx_axes=_axes_by_name(mbd.mlx_axes),
        pieces="bands.{}.",
        license="cc-by-nc-4.0",
    ),
}


def _check_mars5(configs: Configs, documents: Documents) -> None:
    ar, nar = configs["mars5"], configs["mars5_nar"]
    vocabulary = CodecVocabulary.read(*[documents["mars5"][name] for name in MARS5_TOKENIZERS])
    vocabulary.check_fits(ar.vocab_size)
    if nar.text_rows != vocabulary.first_speech + 1:
        raise CheckpointError(
            f"MARS5: the NAR reads {nar.text_rows - 1} text ids, the AR's tokenizer has "
            f"{vocabulary.first_speech}; give the two that belong together"
        )
    if nar.n_codebooks != ar.n_codebooks:
        raise CheckpointError(f"MARS5: AR and NAR read {ar.n_codebooks} and {nar.n_codebooks} codebooks")
    _check_codecs(configs, "MARS5", nar.n_codebooks, ar.codebook_rows - 1)


def _check_metavoice(configs: Configs, documents: Documents) -> None:
    first, second = configs["metavoice"], configs["metavoice_second_stage"]
    tables = {"first_stage": "metavoice", "second_stage": "metavoice_second_stage"}
    read = {stage: json.loads(documents[kind]["tokenizer.json"]) for stage, kind in tables.items()}
    metavoice_text.read_converted(read).check_fits(first, second)
    speaker = configs["metavoice_speaker_encoder"].speaker_embedding_size
    widths = (first.speaker_embedding_size, second.speaker_embedding_size, speaker)
    if len(set(widths)) != 1:
        raise CheckpointError(
            f"MetaVoice: first stage, second stage and speaker encoder have speaker vectors of {widths[0]}, "
            f"{widths[1]} and {widths[2]} numbers; give those that belong together"
        )
    _check_codecs(configs, "MetaVoice", second.n_codebooks, metavoice.CODEBOOK_SIZE)
    codec, bands = configs["encodec"], configs.get("mbd")
    if bands and (bands.codec_dim, bands.sample_rate) != (codec.hidden_size, codec.sample_rate):
        raise CheckpointError(
            f"MBD: made for latents of {bands.codec_dim} at {bands.sample_rate} Hz, the codec has "
            f"{codec.hidden_size} at {codec.sample_rate} Hz"
        )


def _check_codecs(configs: Configs, model: str, books: int, size: int) -> None:
    """EnCodec and Vocos hold the codes that the model speaks, and agree on what a frame is."""
    codec, vocoder = configs["encodec"], configs["vocos"]
    for title, config in (("EnCodec", codec), ("Vocos", vocoder)):
        if config.n_codebooks < books or config.codebook_size != size:
            raise CheckpointError(
                f"{title}: {config.n_codebooks} codebooks of {config.codebook_size} codes, {model} speaks "
                f"{books} of {size}; give the one that belongs to it"
            )
    frames = [(config.sample_rate, config.hop_length) for config in (codec, vocoder)]
    if frames[0] != frames[1]:
        raise CheckpointError(
            f"{model}: EnCodec and Vocos have {frames[0][0]} and {frames[1][0]} Hz, "
            f"{frames[0][1]} and {frames[1][1]} samples a frame"
        )


MODELS = {
    "dia": Model(
        "Dia",
        own=("dia",),
        parts=("dia", "dac"),
        check=_check_dia,
        call='--text "[S1] Hello there. [S2] Hi!"',
    ),
    "mars5": Model(
        "MARS5",
        own=("mars5", "mars5_nar"),
        parts=("mars5", "mars5_nar", "encodec", "vocos"),
        check=_check_mars5,
        call='--text "Hello there." --ref-audio speaker.wav --ref-text "What the speaker says."',
    ),
    "metavoice": Model(
        "MetaVoice",
        own=("metavoice", "metavoice_second_stage", "metavoice_speaker_encoder"),
        parts=(
            *("metavoice", "metavoice_second_stage", "metavoice_speaker_encoder"),
            *("encodec", "vocos"),
        ),
        extras=("mbd",),
        check=_check_metavoice,
        call='--text "Hello there." --ref-audio speaker.wav',
    ),
}


def check_fits(model: str, configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError unless the parts of a model belong together; with a part absent, nothing is
    checked.
    """
    if all(kind in configs for kind in MODELS[model].parts):
        MODELS[model].check(configs, documents)


def network_class(side: str, kind: str) -> Any:
    """The class of a kind's network. side: the package that it is written in."""
    module, _, name = KINDS[kind].network.partition(":")
    return getattr(importlib.import_module(f"{side}.{module}"), name)
