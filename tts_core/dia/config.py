"""Dia's configuration, read from any of its three published schemas or from a converted folder.

Names and shapes are the same in both generations of weights. v0.1 rotates queries and keys in
cross-attention and samples the guided logits; 0626 does neither. The schema decides: nested `data` +
`model` is v0.1, the flat transformers form is 0626. A fine-tune saved in the other schema needs the
override `cross_rope`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

from tts_core.config import Schema, check_numbers, exact_fields, mapping
from tts_core.dia.options import DEFAULTS_0626, DEFAULTS_V01, DiaSampling
from tts_core.errors import CheckpointError, UsageError
from tts_core.printable import named


@dataclass(frozen=True)
class DiaEncoderConfig:
    """Sizes of the text encoder."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int  # text limit in bytes
    vocab_size: int
    norm_eps: float
    rope_theta: float

    def __post_init__(self) -> None:
        check_numbers(self, "encoder")
        _check_heads("encoder", self.num_attention_heads, self.num_key_value_heads)
        _check_rotary("encoder", self.head_dim)


@dataclass(frozen=True)
class DiaDecoderConfig:
    """Sizes of the audio decoder."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    cross_hidden_size: int  # width of the encoder's output
    cross_num_attention_heads: int
    cross_num_key_value_heads: int
    cross_head_dim: int
    max_position_embeddings: int  # grid rows: BOS, frames and the longest delay
    vocab_size: int
    num_channels: int
    norm_eps: float
    rope_theta: float

    def __post_init__(self) -> None:
        check_numbers(self, "decoder")
        _check_heads("decoder", self.num_attention_heads, self.num_key_value_heads)
        _check_heads(
            "decoder cross-attention", self.cross_num_attention_heads, self.cross_num_key_value_heads
        )
        _check_rotary("decoder", self.head_dim)


@dataclass(frozen=True)
class DiaConfig(Schema):
    """Shape of a Dia network, its special ids and its default sampling. No dtype or device."""

    encoder_config: DiaEncoderConfig
    decoder_config: DiaDecoderConfig
    delay_pattern: tuple[int, ...]  # rows that each channel lags, channel 0 first
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    cross_rope: bool  # v0.1: rotary positions in cross-attention, and its sampling rule
    sampling: DiaSampling
    own_speakers: tuple[str, ...] = ()  # of [S1], [S2]: all that it was trained on, whatever it continues

    def __post_init__(self) -> None:
        decoder, own = self.decoder_config, self.own_speakers
        if not (isinstance(own, tuple) and len(own) in (0, 2) and all(isinstance(name, str) for name in own)):
            raise CheckpointError(f"config.json: own_speakers {own!r:.40} are not two names, or none")
        if len(self.delay_pattern) != decoder.num_channels:
            raise CheckpointError(
                f"config.json: {len(self.delay_pattern)} delays for {decoder.num_channels} channels"
            )
        if min(self.delay_pattern) < 0 or self.delay_pattern[0] != 0:
            raise CheckpointError(
                f"config.json: delay_pattern {self.delay_pattern} must start at 0 and not be negative"
            )
        if decoder.cross_hidden_size != self.encoder_config.hidden_size:
            raise CheckpointError(
                f"config.json: cross_hidden_size {decoder.cross_hidden_size} is not the encoder's width "
                f"{self.encoder_config.hidden_size}"
            )
        ids = _integers((self.eos_token_id, self.pad_token_id, self.bos_token_id), "eos, pad and bos ids")
        if len(set(ids)) != 3 or self.eos_token_id != min(ids) or max(ids) >= decoder.vocab_size:
            raise CheckpointError(
                f"config.json: eos, pad, bos ids {ids} must differ, eos lowest, below {decoder.vocab_size}"
            )

    @property
    def generation(self) -> str:
        """The release whose rules apply: "v0.1" or "0626"."""
        return "v0.1" if self.cross_rope else "0626"

    def with_cross_rope(self, cross_rope: bool) -> DiaConfig:
        """Apply --cross-rope; a change also selects the default sampling of the other generation."""
        if self.cross_rope == cross_rope:
            return self
        return replace(self, cross_rope=cross_rope, sampling=DEFAULTS_V01 if cross_rope else DEFAULTS_0626)

    @property
    def longest_delay(self) -> int:
        """Rows between a frame's first and last code."""
        return max(self.delay_pattern)

    @property
    def max_text_bytes(self) -> int:
        """Text limit, counted after [S1] and [S2] have become one byte each."""
        return self.encoder_config.max_position_embeddings

    @property
    def max_frames(self) -> int:
        """Codec frames, prompt included, that fit the decoder's positions."""
        return self.decoder_config.max_position_embeddings - self.longest_delay - 1


def read_published(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None = None,
    *,
    cross_rope: bool | None = None,
) -> DiaConfig:
    """Read the configuration from a published config.json of any schema.

    cross_rope: None derives it from the schema. generation_config: its guidance_scale and other values of
    sampling, if present, replace the defaults of the release.
    Raises CheckpointError naming every missing and every unknown field.
    """
    if "data" in config and "model" in config:
        read = _read_nested(config)
    elif "encoder_config" in config and "decoder_config" in config:
        read = _read_flat(config)
    else:
        raise CheckpointError(
            "config.json: not a Dia configuration: neither data + model nor encoder_config + decoder_config"
        )
    if cross_rope is not None:
        read = read.with_cross_rope(cross_rope)
    return replace(read, sampling=_published_sampling(read.sampling, generation_config or {}))


def read_converted(config: Mapping[str, Any]) -> DiaConfig:
    """Read the configuration from our own schema; the error names every unknown and missing field."""
    own = exact_fields(DiaConfig, {"own_speakers": (), **mapping(config, "config.json")}, "config.json")
    encoder = exact_fields(DiaEncoderConfig, own["encoder_config"], "encoder_config")
    decoder = exact_fields(DiaDecoderConfig, own["decoder_config"], "decoder_config")
    own["encoder_config"], own["decoder_config"] = DiaEncoderConfig(**encoder), DiaDecoderConfig(**decoder)
    later = {one.name: one.default for one in fields(DiaSampling) if one.default is not MISSING}
    stated = later | {**mapping(own["sampling"], "sampling")}
    own["sampling"] = _sampling(exact_fields(DiaSampling, stated, "sampling"), "sampling")
    return DiaConfig(**own)


# published fields that do not change what the network computes
_HARMLESS_TOP = [
    "architectures",
    "model_type",
    "is_encoder_decoder",
    "initializer_range",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "norm_eps",
    "_name_or_path",
    "return_dict",
    "output_hidden_states",
    "output_attentions",
    "tie_word_embeddings",
]
_HARMLESS_SUB = [
    "model_type",
    "hidden_act",
    "initializer_range",
    "use_cache",
    "rope_scaling",
    "rope_parameters",
    "rope_theta",
    "dtype",
    "torch_dtype",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "transformers_version",
]


def _read_flat(config: Mapping[str, Any]) -> DiaConfig:
    """Read the 0626 file, or one that transformers 5 saved: ids may be at the top or in decoder_config."""
    _reject_unknown(
        config,
        [*_HARMLESS_TOP, "encoder_config", "decoder_config", "delay_pattern", "own_speakers", *_ID_FIELDS],
        "config.json",
    )
    own = config.get("own_speakers", ())
    encoder = _sub_config(DiaEncoderConfig, config, "encoder_config")
    decoder = _sub_config(DiaDecoderConfig, config, "decoder_config")
    ids = {name: _first_set(name, config, config["decoder_config"]) for name in _ID_FIELDS}
    missing = [name for name, value in ids.items() if value is None]
    if missing or "delay_pattern" not in config:
        missing += ["delay_pattern"] if "delay_pattern" not in config else []
        raise CheckpointError(f"config.json: {', '.join(missing)} missing")
    return DiaConfig(
        encoder_config=DiaEncoderConfig(**encoder),
        decoder_config=DiaDecoderConfig(**decoder),
        delay_pattern=_integers(config["delay_pattern"], "delay_pattern"),
        cross_rope=False,
        sampling=DEFAULTS_0626,
        own_speakers=tuple(own) if isinstance(own, list) else own,
        **ids,
    )


_ID_FIELDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def _sub_config(kind: type, config: Mapping[str, Any], part: str) -> dict[str, Any]:
    given = mapping(config[part], part)
    names = [field.name for field in fields(kind)]
    _reject_unknown(given, [*_HARMLESS_SUB, *names], part)
    if given.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{part}: hidden_act {given['hidden_act']!r} is not supported, only 'silu'")
    rope = given.get("rope_parameters") or {}
    if given.get("rope_scaling") or rope.get("rope_type", "default") != "default":
        raise CheckpointError(f"{part}: scaled rotary positions are not supported")
    values = {name: given[name] for name in names if name in given}
    values.setdefault("norm_eps", config.get("norm_eps"))
    values["rope_theta"] = _first_set("rope_theta", given, rope)
    missing = [name for name in names if values.get(name) is None]
    if missing:
        raise CheckpointError(f"{part}: {', '.join(missing)} missing")
    return values


def _read_nested(config: Mapping[str, Any]) -> DiaConfig:
    """Read the v0.1 file. Like its loader, round both lengths up to a multiple of 128."""
    _reject_unknown(config, ["version", "data", "model", "training"], "config.json")
    data, model = mapping(config["data"], "data"), mapping(config["model"], "model")
    _reject_unknown(data, _NESTED_DATA, "data")
    _reject_unknown(model, [*_NESTED_MODEL, "encoder", "decoder", *_NESTED_HARMLESS], "model")
    for part in ("encoder", "decoder"):
        if part not in model:
            raise CheckpointError(f"config.json: model.{part} missing")
    encoder, decoder = mapping(model["encoder"], "model.encoder"), mapping(model["decoder"], "model.decoder")
    _reject_unknown(encoder, [*_NESTED_ENCODER, *_NESTED_HARMLESS], "model.encoder")
    _reject_unknown(decoder, [*_NESTED_DECODER, *_NESTED_HARMLESS], "model.decoder")
    missing = [
        f"{part}.{name}"
        for part, given, wanted in (
            ("data", data, _NESTED_DATA),
            ("model", model, _NESTED_MODEL),
            ("model.encoder", encoder, _NESTED_ENCODER),
            ("model.decoder", decoder, _NESTED_DECODER),
        )
        for name in wanted
        if name not in given and name not in _NESTED_OPTIONAL
    ]
    if missing:
        raise CheckpointError(f"config.json: {', '.join(missing)} missing")
    if model.get("rope_min_timescale", 1) != 1:
        raise CheckpointError(
            f"config.json: rope_min_timescale {model['rope_min_timescale']} is not supported, only 1"
        )
    if data.get("text_pad_value", 0) != 0:
        raise CheckpointError(
            f"config.json: text_pad_value {data['text_pad_value']} is not supported, only 0"
        )
    shared = {
        "norm_eps": model["normalization_layer_epsilon"],
        "rope_theta": model["rope_max_timescale"],
    }
    return DiaConfig(
        encoder_config=DiaEncoderConfig(
            hidden_size=encoder["n_embd"],
            intermediate_size=encoder["n_hidden"],
            num_hidden_layers=encoder["n_layer"],
            num_attention_heads=encoder["n_head"],
            num_key_value_heads=encoder["n_head"],
            head_dim=encoder["head_dim"],
            max_position_embeddings=_round_up(data["text_length"], 128),
            vocab_size=model["src_vocab_size"],
            **shared,
        ),
        decoder_config=DiaDecoderConfig(
            hidden_size=decoder["n_embd"],
            intermediate_size=decoder["n_hidden"],
            num_hidden_layers=decoder["n_layer"],
            num_attention_heads=decoder["gqa_query_heads"],
            num_key_value_heads=decoder["kv_heads"],
            head_dim=decoder["gqa_head_dim"],
            cross_hidden_size=encoder["n_embd"],
            cross_num_attention_heads=decoder["cross_query_heads"],
            cross_num_key_value_heads=decoder["cross_query_heads"],
            cross_head_dim=decoder["cross_head_dim"],
            max_position_embeddings=_round_up(data["audio_length"], 128),
            vocab_size=model["tgt_vocab_size"],
            num_channels=data["channels"],
            **shared,
        ),
        delay_pattern=_integers(data["delay_pattern"], "data.delay_pattern"),
        bos_token_id=data["audio_bos_value"],
        eos_token_id=data["audio_eos_value"],
        pad_token_id=data["audio_pad_value"],
        cross_rope=True,
        sampling=DEFAULTS_V01,
    )


_NESTED_DATA = [
    "text_length",
    "audio_length",
    "channels",
    "text_pad_value",
    "audio_eos_value",
    "audio_pad_value",
    "audio_bos_value",
    "delay_pattern",
]
_NESTED_MODEL = [
    "normalization_layer_epsilon",
    "rope_min_timescale",
    "rope_max_timescale",
    "src_vocab_size",
    "tgt_vocab_size",
]
_NESTED_ENCODER = ["n_layer", "n_embd", "n_hidden", "n_head", "head_dim"]
_NESTED_DECODER = [
    "n_layer",
    "n_embd",
    "n_hidden",
    "gqa_query_heads",
    "kv_heads",
    "gqa_head_dim",
    "cross_query_heads",
    "cross_head_dim",
]
_NESTED_OPTIONAL = {"rope_min_timescale", "text_pad_value"}
_NESTED_HARMLESS = ["dropout", "weight_dtype", "mlp_activations", "use_pre_norm"]


_PUBLISHED_AS = {"cfg_scale": "guidance_scale"}


def _published_sampling(default: DiaSampling, given: Mapping[str, Any]) -> DiaSampling:
    names = {one.name: _PUBLISHED_AS.get(one.name, one.name) for one in fields(DiaSampling)}
    found = {ours: given[theirs] for ours, theirs in names.items() if given.get(theirs) is not None}
    return _sampling(asdict(default) | found, "generation_config.json")


def _sampling(values: dict[str, Any], where: str) -> DiaSampling:
    """Read a file's sampling values; a bad one raises CheckpointError."""
    try:
        return DiaSampling(**values)
    except (UsageError, TypeError) as fault:
        raise CheckpointError(f"{where}: {fault}") from None


def _integers(value: object, where: str) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(type(number) is int for number in value):
        raise CheckpointError(f"config.json: {where} {value!r:.40} is not a list of whole numbers")
    return tuple(value)


def _reject_unknown(given: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise CheckpointError(f"{where}: unknown fields {named(unknown)}; this Dia variant is not supported")


def _first_set(name: str, *places: Mapping[str, Any]) -> Any:
    return next((place[name] for place in places if place.get(name) is not None), None)


def _round_up(value: int, multiple: int) -> int:
    if type(value) is not int:
        raise CheckpointError(f"config.json: a length is {value!r:.40}, not a whole number")
    return -(-value // multiple) * multiple


def _check_heads(part: str, query_heads: int, kv_heads: int) -> None:
    if query_heads % kv_heads:
        raise CheckpointError(
            f"config.json: {part}: {query_heads} query heads do not divide among {kv_heads} kv heads"
        )


def _check_rotary(part: str, head_dim: int) -> None:
    if head_dim % 2:
        raise CheckpointError(f"config.json: {part}: head_dim {head_dim} is odd, rotary positions need pairs")
