"""Strict reader of voice.toml, and the configurations of the two networks in it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from tts_core.codecs.dac import DacConfig
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.options import DiaSampling

DEFAULT = Path(__file__).parent / "voice.toml"
T = TypeVar("T")


@dataclass(frozen=True)
class Synthesis:
    voices: list[str]
    heard: list[str]
    heard_every: int
    utterances_per_shard: int


@dataclass(frozen=True)
class CodecTraining:
    frames: int
    batch: int
    learning_rate: float
    warmup: int
    mel_weight: float
    wave_weight: float
    own_from: float
    shards: int


@dataclass(frozen=True)
class Polish:
    frames: int
    batch: int
    shards: int
    learning_rate: float
    encoder_learning_rate: float
    warmup: int
    mel_weight: float
    adversarial_weight: float
    feature_weight: float


@dataclass(frozen=True)
class LanguageTraining:
    shards: int
    rows: int
    longest: int
    learning_rate: float
    warmup: int
    weight_decay: float
    text_dropout: float
    code_noise: float
    swapped: float
    short_first: float
    guide_weight: float
    average: float


@dataclass(frozen=True)
class Settings:
    """Contents of voice.toml."""

    seed: int
    utterances: int
    synthesis: Synthesis
    codebook_roles: list[str]
    codebook_shards: int
    codec: DacConfig
    codec_training: CodecTraining
    polish: Polish
    dia: DiaConfig
    language_training: LanguageTraining


def read_settings(path: str | Path = DEFAULT) -> Settings:
    """Read voice.toml. Raises ValueError naming a section's unknown or missing fields."""
    with Path(path).open("rb") as file:
        tree = tomllib.load(file)
    codec, language = tree["codec"], tree["language_model"]
    codec_training, polish = codec.pop("training"), codec.pop("polish")
    dac = _codec(codec)
    return Settings(
        seed=tree["seed"],
        utterances=tree["text"]["utterances"],
        synthesis=_fill(Synthesis, tree["synthesis"], "synthesis"),
        codebook_roles=tree["codebooks"]["roles"],
        codebook_shards=tree["codebooks"]["shards"],
        codec=dac,
        codec_training=_fill(CodecTraining, codec_training, "codec.training"),
        polish=_fill(Polish, polish, "codec.polish"),
        dia=_dia(language["encoder"], language["decoder"], tree["sampling"], dac),
        language_training=_fill(LanguageTraining, language["training"], "language_model.training"),
    )


def _codec(given: dict[str, Any]) -> DacConfig:
    books = given["n_codebooks"]
    width = given["encoder_hidden_size"] * 2 ** len(given["downsampling_ratios"])
    lists = {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    full = {**given, **lists, "codebook_dim": (given["codebook_dim"],) * books, "hidden_size": width}
    return _fill(DacConfig, full, "codec")


def _dia(
    encoder: dict[str, Any], decoder: dict[str, Any], sampling: dict[str, Any], dac: DacConfig
) -> DiaConfig:
    """Build Dia's configuration: EOS, PAD and BOS follow the codes; codebook c is delayed by c rows."""
    shared = {"norm_eps": 1e-5, "rope_theta": 10000.0}
    special = dac.codebook_size
    channels = {
        "cross_hidden_size": encoder["hidden_size"],
        "vocab_size": special + 4,
        "num_channels": dac.n_codebooks,
    }
    return DiaConfig(
        encoder_config=_fill(DiaEncoderConfig, {**encoder, **shared, "vocab_size": 256}, "encoder"),
        decoder_config=_fill(DiaDecoderConfig, {**decoder, **shared, **channels}, "decoder"),
        delay_pattern=tuple(range(dac.n_codebooks)),
        eos_token_id=special,
        pad_token_id=special + 1,
        bos_token_id=special + 2,
        cross_rope=False,
        own_speakers=("slt", "rms"),
        sampling=DiaSampling(
            cfg_scale=sampling["guidance_scale"],
            temperature=sampling["temperature"],
            top_p=sampling["top_p"],
            top_k=sampling["top_k"],
        ),
    )


def _fill(kind: type[T], given: dict[str, Any], where: str) -> T:
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if set(given) != names:
        raise ValueError(f"voice.toml: {where}: {sorted(set(given) ^ names)} unknown or missing")
    return kind(**given)
