"""Facts about Dia: its networks, its published repositories and its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tts_core.codecs import dac
from tts_core.codecs.dac import DAC_44KHZ, DacConfig
from tts_core.config import config_of
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig, read_converted
from tts_core.dia.options import DEFAULTS_0626, DEFAULTS_V01, DiaOptions
from tts_core.dia.shapes import is_large, is_norm, parameter_shapes
from tts_core.models import ROWS_ONLY, Code, Configs, Documents, Model, Network, Speed, Wide
from tts_core.text.rules import FILE as RULES_FILE
from tts_core.text.rules import read_rules

REPOSITORY, REPOSITORY_V01 = "nari-labs/Dia-1.6B-0626", "nari-labs/Dia-1.6B"


def _dia(*, cross_rope: bool) -> DiaConfig:
    return DiaConfig(
        encoder_config=DiaEncoderConfig(
            hidden_size=1024,
            intermediate_size=4096,
            num_hidden_layers=12,
            num_attention_heads=16,
            num_key_value_heads=16,
            head_dim=128,
            max_position_embeddings=1024,
            vocab_size=256,
            norm_eps=1e-5,
            rope_theta=10000.0,
        ),
        decoder_config=DiaDecoderConfig(
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=18,
            num_attention_heads=16,
            num_key_value_heads=4,
            head_dim=128,
            cross_hidden_size=1024,
            cross_num_attention_heads=16,
            cross_num_key_value_heads=16,
            cross_head_dim=128,
            max_position_embeddings=3072,
            vocab_size=1028,
            num_channels=9,
            norm_eps=1e-5,
            rope_theta=10000.0,
        ),
        delay_pattern=(0, 8, 9, 10, 11, 12, 13, 14, 15),
        bos_token_id=1026,
        eos_token_id=1024,
        pad_token_id=1025,
        cross_rope=cross_rope,
        sampling=DEFAULTS_V01 if cross_rope else DEFAULTS_0626,
    )


# the two config.json; both store float32
DIA_0626, DIA_V01 = _dia(cross_rope=False), _dia(cross_rope=True)


def check(configs: Configs, documents: Documents) -> None:
    """Raise CheckpointError if the codec's codes do not match Dia's, or text rules cannot be read."""
    read_rules(documents["dia"])
    config = config_of(configs, "dia", DiaConfig)
    dac.check_fits(
        config_of(configs, "dac", DacConfig), config.decoder_config.num_channels, config.eos_token_id
    )


def learned(documents: Documents) -> Callable[[str], bool] | None:
    """Decide by the folder's text rules; without an alphabet it reads any character."""
    rules = read_rules(documents.get("dia", {}))
    return None if rules.alphabet is None else rules.knows


def varies(config: DiaConfig) -> dict[str, Any]:
    """Return the facts that depend on the checkpoint: whether it speaks in voices of recordings."""
    own = config.own_speakers
    return {"own_speakers": own, "references": 0, "transcript": "unused"} if own else {}


def _reads(name: str) -> bool:
    """Exclude the encoder, what is projected of the text once, and tables that are read by rows."""
    decoder = name.startswith(("model.decoder.layers.", "model.decoder.norm", "logits_dense"))
    return decoder and not any(once in name for once in (".cross_attention.k_", ".cross_attention.v_"))


def code() -> Code:
    """Import the functions."""
    from tts_core.dia.footprint import PLAN
    from tts_core.dia.probes import probes
    from tts_core.dia.request import DiaFacts
    from tts_core.dia.speech import speak

    return Code(DiaFacts.of, speak, PLAN, probes)


MODEL = Model(
    name="dia",
    title="Dia",
    options=DiaOptions,
    code=code,
    networks={
        "dia": Network(
            title="Dia",
            folder="",
            network="dia.dia:Dia",
            parameter_shapes=parameter_shapes,
            read_converted=read_converted,
            stays_float32=is_norm,
            is_large=is_large,
            wide=(Wide("embeddings", r"\.embed", ROWS_ONLY),),
            optional_documents=(RULES_FILE,),
            descriptions=("config.json", "generation_config.json"),
            repository=REPOSITORY,
        )
    },
    parts=("dia", "dac"),
    check=check,
    learned=learned,
    sizes={
        REPOSITORY: {"dia": DIA_0626, "dac": DAC_44KHZ},
        REPOSITORY_V01: {"dia": DIA_V01, "dac": DAC_44KHZ},
    },
    on_mps=("float32", "float16 overflows in Dia's layers on MPS (nari-labs/dia#79)"),
    references=1,
    transcript="needed",
    example='--text "[S1] Hello there. [S2] Hi!"',
    speakers=2,
    varies=varies,
    hints={"cross_rope": DiaConfig.with_cross_rope},
    speed=Speed(
        stages=("prompt", "speech"),
        unit="row",
        frame_rate=lambda configs: config_of(configs, "dac", DacConfig).frame_rate,
        layers=lambda configs: config_of(configs, "dia", DiaConfig).decoder_config.num_hidden_layers,
        reads=_reads,
        text="[S1] The quick brown fox jumps over the lazy dog near the river bank.",
        documents=lambda configs: {"dia": {}, "dac": {}},
    ),
)
