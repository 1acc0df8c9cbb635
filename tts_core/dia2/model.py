"""Facts about Dia2: its networks, its published repositories and its defaults."""

from __future__ import annotations

from tts_core.codecs.mimi import MIMI_24KHZ, MimiConfig
from tts_core.config import config_of
from tts_core.dia2.config import GATED, Dia2Config, Dia2StackConfig
from tts_core.dia2.options import Dia2Options
from tts_core.dia2.script import SPEAKERS
from tts_core.dia2.shapes import is_large, is_norm, parameter_shapes
from tts_core.dia2.tokenizer import ASSETS_FILE, CONFIG_FILE, FILE, byte_tokenizer, shared_tokenizer
from tts_core.errors import CheckpointError
from tts_core.models import DEPTH, ROWS_ONLY, Code, Configs, Documents, Model, Network, Speed, Wide

REPOSITORY, REPOSITORY_1B = "nari-labs/Dia2-2B", "nari-labs/Dia2-1B"


def _dia2(layers: int, width: int, depformer_layers: int, sets: int) -> Dia2Config:
    """Sizes of a published model. Which stage uses which set of weights is known only at both ends."""
    streams = 32
    return Dia2Config(
        transformer=Dia2StackConfig(layers, width, 6144, 16, 8, 128, GATED),
        depformer=Dia2StackConfig(depformer_layers, 1024, 3072, 8, 8, 128, GATED),
        low_rank_dim=width,
        depformer_has_rope=True,
        depformer_has_text=False,
        rope_min_timescale=1,
        rope_max_timescale=10000,
        norm_eps=1e-6,
        text_vocab_size=49280,
        audio_vocab_size=2050,
        action_vocab_size=2,
        text_bos_id=1,
        text_pad_id=3,
        text_new_word_id=2,
        text_zero_id=7,
        audio_pad_id=2049,
        audio_bos_id=2048,
        delay_pattern=(16, *[18] * (streams - 1)),
        second_stream_ahead=2,
        weights_schedule=tuple(min(stage, sets - 1) for stage in range(streams - 1)),
        max_context_steps=1500,
    )


DIA2_2B, DIA2_1B = _dia2(28, 2048, 4, 5), _dia2(30, 1024, 3, 3)


def check(configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError unless the codec has the model's codes, and the tokenizer its ids."""
    config, codec = config_of(configs, "dia2", Dia2Config), config_of(configs, "mimi", MimiConfig)
    if config.n_streams > codec.n_codebooks or config.codebook_size > codec.codebook_size:
        raise CheckpointError(
            f"codec: {codec.n_codebooks} codebooks of {codec.codebook_size} codes, the model has "
            f"{config.n_streams} streams of {config.codebook_size}; use the codec of its release"
        )
    shared_tokenizer(documents["dia2"][FILE], config.text_vocab_size)


def _layers(configs: Configs) -> int:
    """Count the calls of layers in a frame: the depformer's run once for each code after the first."""
    config = config_of(configs, "dia2", Dia2Config)
    stages = config.n_streams - 1
    return config.transformer.num_hidden_layers + stages * config.depformer.num_hidden_layers


def _reads(name: str) -> bool:
    """Exclude tables that are read by rows.

    The depformer's weights count once; where no cache holds them, a frame reads them for every stage again.
    """
    return ".audio_embeds." not in name and not name.endswith("text_embed.embedding.weight")


def code() -> Code:
    """Import the functions."""
    from tts_core.dia2.footprint import PLAN
    from tts_core.dia2.probes import probes
    from tts_core.dia2.request import Dia2Facts
    from tts_core.dia2.speech import speak

    return Code(Dia2Facts.of, speak, PLAN, probes)


MODEL = Model(
    name="dia2",
    title="Dia2",
    options=Dia2Options,
    code=code,
    networks={
        "dia2": Network(
            title="Dia2",
            folder="",
            network="dia2.dia2:Dia2",
            parameter_shapes=parameter_shapes,
            read_converted=Dia2Config.from_dict,
            stays_float32=is_norm,
            is_large=is_large,
            wide=(
                Wide("embeddings", r"_embeds\.|\.embedding\.", ROWS_ONLY),
                Wide("text projections", r"_embed\.\w+_proj\.", "they follow the embedding of one word"),
                Wide("depformer", r"^depformer\.(depformer_in|layers|logits)\.", DEPTH),
                Wide("action head", r"\.action_head\.", "a few rows, which decide when words are said"),
            ),
            documents=(FILE,),
            descriptions=("config.json", CONFIG_FILE, ASSETS_FILE),
            repository=REPOSITORY,
        )
    },
    parts=("dia2", "mimi"),
    check=check,
    sizes={
        REPOSITORY: {"dia2": DIA2_2B, "mimi": MIMI_24KHZ},
        REPOSITORY_1B: {"dia2": DIA2_1B, "mimi": MIMI_24KHZ},
    },
    on_mps=("float32", "the original computes in float32 there"),
    references=2,
    transcript="needed",
    fed=True,
    example='--text "[S1] Hello there. [S2] Hi!"',
    speakers=2,
    speed=Speed(
        stages=("prompt", "speech"),
        unit="frame",
        frame_rate=lambda configs: config_of(configs, "mimi", MimiConfig).frame_rate,
        layers=_layers,
        reads=_reads,
        text="[S1] The quick brown fox jumps over the lazy dog near the river bank.",
        documents=lambda configs: {"dia2": {FILE: byte_tokenizer(SPEAKERS)}, "mimi": {}},
    ),
)
