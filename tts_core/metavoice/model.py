"""Facts about MetaVoice: its networks, its published repositories and its defaults."""

from __future__ import annotations

from collections.abc import Mapping

from tts_core.codecs import mbd, vocos
from tts_core.codecs.encodec import ENCODEC_24KHZ, EncodecConfig
from tts_core.codecs.mbd import MbdConfig
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ, VocosConfig
from tts_core.config import config_of
from tts_core.errors import CheckpointError
from tts_core.metavoice.config import (
    CODEBOOK_SIZE,
    END_OF_AUDIO,
    FIRST_STAGE_BOOKS,
    FirstStageConfig,
    SecondStageConfig,
    SpeakerEncoderConfig,
    first_stage_parameter_shapes,
    is_quantisable,
    second_stage_parameter_shapes,
    speaker_encoder_parameter_shapes,
)
from tts_core.metavoice.inputs import FirstStageSampling
from tts_core.metavoice.options import MetaVoiceOptions
from tts_core.metavoice.text import TOKENIZER, byte_tokenizer, is_readable, read_tokenizers
from tts_core.models import ROWS_ONLY, Configs, Documents, Model, Network, Speed, Wide, never
from tts_core.text.spoken import SIGNS

REPOSITORY, LICENSE = "metavoiceio/metavoice-1B-v0.1", "apache-2.0"

# model_args of metavoiceio/metavoice-1B-v0.1's checkpoints, and its speaker encoder's tensors
METAVOICE_FIRST_STAGE = FirstStageConfig(
    hidden_size=2048,
    intermediate_size=5632,
    num_hidden_layers=24,
    num_attention_heads=16,
    max_position_embeddings=2048,
    vocab_size=2562,
    speaker_embedding_size=256,
    norm_eps=1e-5,
    bias=False,
)
METAVOICE_SECOND_STAGE = SecondStageConfig(
    hidden_size=384,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=6,
    max_position_embeddings=1024,
    vocab_sizes=(1538, 1025),
    target_vocab_sizes=(1025,) * 6,
    speaker_embedding_size=256,
    bias=False,
)
METAVOICE_SPEAKER_ENCODER = SpeakerEncoderConfig(
    n_mels=40, hidden_size=256, num_hidden_layers=3, speaker_embedding_size=256
)


def check(configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError if networks, tokenizers or codecs do not match."""
    first = config_of(configs, "metavoice", FirstStageConfig)
    second = config_of(configs, "metavoice_second_stage", SecondStageConfig)
    read_tokenizers(documents).check_fits(first, second)
    speaker = config_of(configs, "metavoice_speaker_encoder", SpeakerEncoderConfig).speaker_embedding_size
    widths = (first.speaker_embedding_size, second.speaker_embedding_size, speaker)
    if len(set(widths)) != 1:
        raise CheckpointError(
            f"MetaVoice: first stage, second stage and speaker encoder have speaker vectors of {widths[0]}, "
            f"{widths[1]} and {widths[2]} numbers; use files of the same release"
        )
    codec = config_of(configs, "encodec", EncodecConfig)
    vocos.check_fits(
        config_of(configs, "vocos", VocosConfig), codec, "MetaVoice", second.n_codebooks, CODEBOOK_SIZE
    )
    if "mbd" in configs:
        mbd.check_fits(config_of(configs, "mbd", MbdConfig), codec)


def defaults(config: object, documents: Mapping[str, str]) -> object:
    """Return the model's own settings, by the names of options."""
    return FirstStageSampling


def _knows(char: str) -> bool:
    return is_readable(char) or char.isdecimal() or char in SIGNS


def _reads(name: str) -> bool:
    """Exclude positions, of which a step reads one, and the projection of the speaker's vector."""
    return name != "transformer.wpe.weight" and not name.startswith("speaker_cond_pos")


def _documents(configs: Configs) -> Documents:
    stages = {"metavoice": END_OF_AUDIO + 1, "metavoice_second_stage": CODEBOOK_SIZE + 1}
    tables = {kind: {TOKENIZER: byte_tokenizer(offset)} for kind, offset in stages.items()}
    return {kind: tables.get(kind, {}) for kind in configs}


MODEL = Model(
    name="metavoice",
    title="MetaVoice",
    options=MetaVoiceOptions,
    networks={
        "metavoice": Network(
            title="MetaVoice (first stage)",
            folder="",
            network="metavoice.first_stage:FirstStage",
            parameter_shapes=first_stage_parameter_shapes,
            read_converted=FirstStageConfig.from_dict,
            stays_float32=never,
            is_large=is_quantisable,
            wide=(
                Wide("embeddings", r"\.w(te|tes|pe)\.", f"{ROWS_ONLY}; the head has the same numbers"),
                Wide("speaker projection", r"^speaker_cond_pos\.", "it reads the voice once"),
            ),
            documents=(TOKENIZER,),
            repository=REPOSITORY,
            license=LICENSE,
            original_modes=("int8", "int4"),
        ),
        "metavoice_second_stage": Network(
            title="MetaVoice (second stage)",
            folder="second_stage",
            network="metavoice.second_stage:SecondStage",
            parameter_shapes=second_stage_parameter_shapes,
            read_converted=SecondStageConfig.from_dict,
            wide=(Wide("all of it", "", "it reads a text's frames once, not each frame"),),
            documents=(TOKENIZER,),
            repository=REPOSITORY,
            license=LICENSE,
        ),
        "metavoice_speaker_encoder": Network(
            title="MetaVoice (speaker encoder)",
            folder="speaker_encoder",
            network="metavoice.speaker_encoder:SpeakerEncoder",
            parameter_shapes=speaker_encoder_parameter_shapes,
            read_converted=SpeakerEncoderConfig.from_dict,
            wide=(Wide("all of it", "", "it reads a recording once"),),
            repository=REPOSITORY,
            license=LICENSE,
        ),
    },
    parts=("metavoice", "metavoice_second_stage", "metavoice_speaker_encoder", "encodec", "vocos"),
    learned=lambda documents: _knows,
    extras=("mbd",),
    only_for={"encodec": "mbd"},
    check=check,
    sizes={
        REPOSITORY: {
            "metavoice": METAVOICE_FIRST_STAGE,
            "metavoice_second_stage": METAVOICE_SECOND_STAGE,
            "metavoice_speaker_encoder": METAVOICE_SPEAKER_ENCODER,
            "encodec": ENCODEC_24KHZ,
            "vocos": VOCOS_ENCODEC_24KHZ,
        }
    },
    stages={
        "speaker": "reading the voice",
        "first stage": "coarse sound",
        "second stage": "fine sound",
        "decoder": "waveform",
    },
    on_mps=("float16", "half of float32's memory, and every release of MPS supports it"),
    references=None,
    transcript="unused",
    needs_voice=True,
    example='--text "Hello there." --ref-audio speaker.wav',
    defaults=defaults,
    speed=Speed(
        stages=("first stage",),
        unit="id",
        steps_per_frame=FIRST_STAGE_BOOKS,
        frame_rate=lambda configs: config_of(configs, "encodec", EncodecConfig).frame_rate,
        layers=lambda configs: config_of(configs, "metavoice", FirstStageConfig).num_hidden_layers,
        reads=_reads,
        documents=_documents,
    ),
)
