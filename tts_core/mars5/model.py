"""Facts about MARS5: its networks, its published repositories and its defaults."""

from __future__ import annotations

import re

from tts_core.codecs import vocos
from tts_core.codecs.encodec import ENCODEC_24KHZ, EncodecConfig
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ, VocosConfig
from tts_core.config import config_of
from tts_core.errors import CheckpointError
from tts_core.mars5.config import (
    CodecLMConfig,
    ResidualTransformerConfig,
    codec_lm_parameter_shapes,
    is_norm,
    residual_transformer_parameter_shapes,
)
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.tokens import SPEECH_FILE, TEXT_FILE, CodecVocabulary, random_tables
from tts_core.models import ROWS_ONLY, Code, Configs, Documents, Model, Network, Speed, Wide

REPOSITORY, LICENSE = "CAMB-AI/MARS5-TTS", "agpl-3.0"
TOKENIZERS = (TEXT_FILE, SPEECH_FILE)
_AR_LAYERS = re.compile(r"ar\.layers\.\d+\.(attention|feed_forward)\.w\w\.weight")
_SPEAKER = Wide("speaker encoder", r"^spk_encoder\.", "it reads a recording once")
_NAR_LAYERS = re.compile(
    r"tfm\.(encoder|decoder)\.layers\.\d+\.(\w+\.(in|out)_proj|linear2|activation\.[VW])\.weight"
)

# MARS5-TTS, AR and NAR. Vocabulary sizes are only in the files. A guess that fits the files' sizes: 2,048
# text ids and 6,144 speech ids, plus two special ids in each.
MARS5_TEXT_IDS = 2050
MARS5_AR = CodecLMConfig(
    vocab_size=MARS5_TEXT_IDS + 6146,
    hidden_size=1536,
    intermediate_size=3584,
    num_hidden_layers=26,
    num_attention_heads=24,
    norm_eps=1e-5,
    rope_theta=10000.0,
    sliding_window=3000,
    speaker_layers=2,
    speaker_heads=24,
    speaker_intermediate_size=4608,
    speaker_norm_eps=4e-5,
    n_codebooks=8,
    codebook_rows=1025,
)
MARS5_NAR = ResidualTransformerConfig(
    text_rows=MARS5_TEXT_IDS + 1,
    n_classes=1025,
    hidden_size=1024,
    intermediate_size=3072,
    encoder_layers=8,
    decoder_layers=16,
    num_attention_heads=16,
    timestep_size=1024,
    speaker_layers=3,
    speaker_heads=16,
    speaker_intermediate_size=3072,
    n_codebooks=8,
    n_output_codebooks=8,
    codebook_rows=1025,
    norm_eps=4e-5,
    head_norm_eps=1e-5,
)


def check(configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError if networks, tokenizers or codecs do not match."""
    ar = config_of(configs, "mars5", CodecLMConfig)
    nar = config_of(configs, "mars5_nar", ResidualTransformerConfig)
    texts = [documents["mars5"][name] for name in TOKENIZERS]
    vocabulary = CodecVocabulary.read(*texts, vocab_size=ar.vocab_size)
    if nar.text_rows != vocabulary.first_speech + 1:
        raise CheckpointError(
            f"MARS5: the NAR reads {nar.text_rows - 1} text ids, the AR's tokenizer has "
            f"{vocabulary.first_speech}; use files of the same release"
        )
    if nar.n_codebooks != ar.n_codebooks:
        raise CheckpointError(f"MARS5: AR and NAR read {ar.n_codebooks} and {nar.n_codebooks} codebooks")
    vocos.check_fits(
        config_of(configs, "vocos", VocosConfig),
        config_of(configs, "encodec", EncodecConfig),
        "MARS5",
        nar.n_codebooks,
        ar.codebook_rows - 1,
    )


def _documents(configs: Configs) -> Documents:
    ids = config_of(configs, "mars5", CodecLMConfig).vocab_size
    text = config_of(configs, "mars5_nar", ResidualTransformerConfig).text_rows - 1
    return {"mars5": random_tables(text, ids - text), "mars5_nar": {}, "encodec": {}, "vocos": {}}


def code() -> Code:
    """Import the functions."""
    from tts_core.mars5.footprint import PLAN
    from tts_core.mars5.probes import probes
    from tts_core.mars5.request import Mars5Facts
    from tts_core.mars5.speech import speak

    return Code(Mars5Facts.of, speak, PLAN, probes)


MODEL = Model(
    name="mars5",
    title="MARS5",
    options=Mars5Options,
    code=code,
    networks={
        "mars5": Network(
            title="MARS5 (AR)",
            folder="",
            network="mars5.codec_lm:CodecLM",
            parameter_shapes=codec_lm_parameter_shapes,
            read_converted=CodecLMConfig.from_dict,
            stays_float32=is_norm,
            is_large=lambda name: _AR_LAYERS.fullmatch(name) is not None,
            wide=(
                Wide("embeddings", r"(^|\.)emb(ed|s)\.|_emb\.", ROWS_ONLY),
                Wide("head", r"^ar\.output\.", "its logits choose each code"),
                _SPEAKER,
            ),
            documents=TOKENIZERS,
            descriptions=("config.json", "mars5_ar.json"),
            repository=REPOSITORY,
            license=LICENSE,
        ),
        "mars5_nar": Network(
            title="MARS5 (NAR)",
            folder="nar",
            network="mars5.residual_transformer:ResidualTransformer",
            parameter_shapes=residual_transformer_parameter_shapes,
            read_converted=ResidualTransformerConfig.from_dict,
            stays_float32=is_norm,
            is_large=lambda name: _NAR_LAYERS.fullmatch(name) is not None,
            wide=(
                Wide("embeddings", r"\.embs\.|_(emb|embed)\.", "they are read once a timestep"),
                Wide("heads", r"^residual_decoder\.", "their logits choose each code"),
                _SPEAKER,
            ),
            descriptions=("config.json", "mars5_nar.json"),
            repository=REPOSITORY,
            license=LICENSE,
        ),
    },
    parts=("mars5", "mars5_nar", "encodec", "vocos"),
    check=check,
    sizes={
        REPOSITORY: {
            "mars5": MARS5_AR,
            "mars5_nar": MARS5_NAR,
            "encodec": ENCODEC_24KHZ,
            "vocos": VOCOS_ENCODEC_24KHZ,
        }
    },
    stages={
        "codec": "reading the voice",
        "AR": "coarse sound",
        "NAR": "fine sound",
        "vocoder": "waveform",
    },
    published_dtype="float16",
    on_mps=("float32", "in half precision one in 2,500 of the diffusion's draws differs (docs/use/mars5.md)"),
    references=1,
    transcript="optional",
    needs_voice=True,
    example='--text "Hello there." --ref-audio speaker.wav --ref-text "What the speaker says."',
    hints={"config": None},
    speed=Speed(
        stages=("AR",),
        unit="id",
        frame_rate=lambda configs: config_of(configs, "encodec", EncodecConfig).frame_rate,
        layers=lambda configs: config_of(configs, "mars5", CodecLMConfig).num_hidden_layers,
        reads=lambda name: name.startswith("ar."),
        text="The quick brown fox jumps over the lazy dog near the river bank.",
        documents=_documents,
    ),
)
