"""Dia's configuration, read from any of its three published schemas or from a converted folder.

Names and shapes are the same in both generations of weights. v0.1 rotates queries and keys in
cross-attention and samples the guided logits; 0626 does neither. The schema decides: nested `data` +
`model` is v0.1, the flat transformers form is 0626. A fine-tune saved in the other schema needs the
override `cross_rope`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, fields, replace
from typing import Annotated, Any

from tts_core.config import (
    HARMLESS,
    LARGEST,
    MOST_LAYERS,
    SAVED,
    Bounds,
    Config,
    Count,
    FileForm,
    Id,
    at,
    exact_fields,
    heads_faults,
    mapping,
)
from tts_core.dia.options import DEFAULTS_0626, DEFAULTS_V01, DiaSampling
from tts_core.errors import CheckpointError, UsageError
from tts_core.shapes import Module, Shapes, attention, projections, shapes, weight

Delays = Annotated[tuple[Id, ...], Bounds(1, MOST_LAYERS)]


class DiaEncoderConfig(Config, title="encoder"):
    """Sizes of the text encoder."""

    hidden_size: int = at(nested="n_embd")
    intermediate_size: int = at(nested="n_hidden")
    num_hidden_layers: Count = at(nested="n_layer")
    num_attention_heads: int = at(nested="n_head")
    num_key_value_heads: int = at(nested="n_head")
    head_dim: int
    max_position_embeddings: int = at(nested="/data.text_length")  # text limit in bytes
    vocab_size: int = at(nested="/model.src_vocab_size")
    norm_eps: float = at("norm_eps", "/norm_eps", nested="/model.normalization_layer_epsilon")
    rope_theta: float = at("rope_theta", "rope_parameters.rope_theta", nested="/model.rope_max_timescale")

    def faults(self) -> Iterator[str]:
        """Check the heads."""
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)


class DiaDecoderConfig(Config, title="decoder"):
    """Sizes of the audio decoder."""

    hidden_size: int = at(nested="n_embd")
    intermediate_size: int = at(nested="n_hidden")
    num_hidden_layers: Count = at(nested="n_layer")
    num_attention_heads: int = at(nested="gqa_query_heads")
    num_key_value_heads: int = at(nested="kv_heads")
    head_dim: int = at(nested="gqa_head_dim")
    cross_hidden_size: int = at(nested="/model.encoder.n_embd")  # width of the encoder's output
    cross_num_attention_heads: int = at(nested="cross_query_heads")
    cross_num_key_value_heads: int = at(nested="cross_query_heads")
    cross_head_dim: int
    # grid rows: BOS, frames and the longest delay
    max_position_embeddings: int = at(nested="/data.audio_length")
    vocab_size: int = at(nested="/model.tgt_vocab_size")
    num_channels: Count = at(nested="/data.channels")
    norm_eps: float = at("norm_eps", "/norm_eps", nested="/model.normalization_layer_epsilon")
    rope_theta: float = at("rope_theta", "rope_parameters.rope_theta", nested="/model.rope_max_timescale")

    def faults(self) -> Iterator[str]:
        """Check the heads."""
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)
        heads, key_heads = self.cross_num_attention_heads, self.cross_num_key_value_heads
        if heads % key_heads:
            yield f"cross-attention: {heads} heads for {key_heads} key heads; give a multiple"


class DiaConfig(Config, title="config.json"):
    """Shape of a Dia network, its special ids and its default sampling. No dtype or device."""

    encoder_config: DiaEncoderConfig = at(nested="model.encoder")
    decoder_config: DiaDecoderConfig = at(nested="model.decoder")
    delay_pattern: Delays = at(nested="data.delay_pattern")  # rows that each channel lags, channel 0 first
    bos_token_id: Id = at("bos_token_id", "decoder_config.bos_token_id", nested="data.audio_bos_value")
    eos_token_id: Id = at("eos_token_id", "decoder_config.eos_token_id", nested="data.audio_eos_value")
    pad_token_id: Id = at("pad_token_id", "decoder_config.pad_token_id", nested="data.audio_pad_value")
    cross_rope: bool  # v0.1: rotary positions in cross-attention, and its sampling rule
    sampling: DiaSampling
    # of [S1], [S2]: all that it was trained on, whatever it continues
    own_speakers: tuple[str, ...] = at(default=(), otherwise=())

    def faults(self) -> Iterator[str]:
        """Check delays, ids and speakers, and that the parts fit."""
        decoder, own, delays = self.decoder_config, self.own_speakers, self.delay_pattern
        if len(own) not in (0, 2):
            yield f"own_speakers {own!r:.40} are not two names, or none"
        if len(delays) != decoder.num_channels:
            yield f"{len(delays)} delays for {decoder.num_channels} channels"
        if delays[0] != 0:
            yield f"delay_pattern {delays!r:.60} must start at 0"
        if decoder.cross_hidden_size != self.encoder_config.hidden_size:
            yield (
                f"cross_hidden_size {decoder.cross_hidden_size} is not the encoder's width "
                f"{self.encoder_config.hidden_size}"
            )
        ids = self.eos_token_id, self.pad_token_id, self.bos_token_id
        if len(set(ids)) != 3 or self.eos_token_id != min(ids) or max(ids) >= decoder.vocab_size:
            yield f"eos, pad, bos ids {ids} must differ, eos lowest, below {decoder.vocab_size}"

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


_ROPE, _IDS = (
    ("rope_scaling", "rope_parameters", "rope_theta"),
    ("bos_token_id", "eos_token_id", "pad_token_id"),
)
_TOP = (*HARMLESS, "is_encoder_decoder", "use_cache", "norm_eps", "tie_word_embeddings")
_PART = (*SAVED, *_ROPE, *_IDS, "hidden_act", "initializer_range", "use_cache")
_SCALED = {"rope_scaling": None, "rope_parameters.rope_type": "default", "hidden_act": "silu"}
_FLAT = FileForm(
    "config.json",
    unused={"": _TOP, "encoder_config": _PART, "decoder_config": _PART},
    fixed={
        f"{part}_config.{name}": value for part in ("encoder", "decoder") for name, value in _SCALED.items()
    },
    support="this Dia variant is not supported",
)
_HARMLESS_NESTED = ("dropout", "weight_dtype", "mlp_activations", "use_pre_norm")
_NESTED = FileForm(
    "config.json",
    name="nested",
    unused={
        "": ("version", "training", "data", "model"),
        "data": (),
        "model": _HARMLESS_NESTED,
        "model.encoder": _HARMLESS_NESTED,
        "model.decoder": _HARMLESS_NESTED,
    },
    fixed={"model.rope_min_timescale": 1, "data.text_pad_value": 0},
    support="this Dia variant is not supported",
)


def read_published(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any] | None = None,
    *,
    cross_rope: bool | None = None,
) -> DiaConfig:
    """Read the configuration from a published config.json of any schema.

    It is the 0626 file, one that transformers 5 saved, whose ids may be in decoder_config, or the v0.1 file,
    whose loader rounds both lengths up to a multiple of 128.
    cross_rope: None derives it from the schema. generation_config: its guidance_scale and other values of
    sampling, if present, replace the defaults of the release.
    Raises CheckpointError naming every missing and every unknown field.
    """
    if {"data", "model"} <= mapping(config, "config.json").keys():
        read = DiaConfig.read(_NESTED, config, cross_rope=True, sampling=DEFAULTS_V01, own_speakers=())
        encoder, decoder = (
            replace(part, max_position_embeddings=-(-part.max_position_embeddings // 128) * 128)
            for part in (read.encoder_config, read.decoder_config)
        )
        read = replace(read, encoder_config=encoder, decoder_config=decoder)
    elif "encoder_config" in config and "decoder_config" in config:
        read = DiaConfig.read(_FLAT, config, cross_rope=False, sampling=DEFAULTS_0626)
    else:
        raise CheckpointError(
            "config.json: not a Dia configuration: neither data + model nor encoder_config + decoder_config"
        )
    if cross_rope is not None:
        read = read.with_cross_rope(cross_rope)
    return replace(read, sampling=_published_sampling(read.sampling, generation_config or {}))


def read_converted(config: Mapping[str, Any]) -> DiaConfig:
    """Read the configuration from our own schema; the error names every unknown and missing field."""
    own = {"own_speakers": (), **mapping(config, "config.json")}
    if "sampling" not in own:
        return DiaConfig.from_dict(own)
    later = {field.name: field.default for field in fields(DiaSampling) if field.default is not MISSING}
    stated = later | {**mapping(own.pop("sampling"), "sampling")}
    sampling = _sampling(exact_fields(DiaSampling, stated, "sampling"), "sampling")
    return DiaConfig.from_dict(own, sampling=sampling)


_PUBLISHED_AS = {"cfg_scale": "guidance_scale"}


def _published_sampling(default: DiaSampling, given: Mapping[str, Any]) -> DiaSampling:
    names = {field.name: _PUBLISHED_AS.get(field.name, field.name) for field in fields(DiaSampling)}
    found = {ours: given[theirs] for ours, theirs in names.items() if given.get(theirs) is not None}
    return _sampling(asdict(default) | found, "generation_config.json")


def _sampling(values: dict[str, Any], where: str) -> DiaSampling:
    """Read a file's sampling values; a bad one raises CheckpointError."""
    wrong = [
        f"{name} {value!r:.40}"
        for name, value in values.items()
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST
    ]
    if wrong:
        raise CheckpointError(f"{where}: {', '.join(wrong)}: expected a number")
    try:
        return DiaSampling(**values)
    except UsageError as fault:
        raise CheckpointError(f"{where}: {fault}") from None


def parameter_shapes(config: DiaConfig) -> Shapes:
    """Map canonical names to shapes, in the order of the network."""
    encoder, decoder = config.encoder_config, config.decoder_config
    width, wide, ids = encoder.hidden_size, decoder.hidden_size, decoder.num_channels * decoder.vocab_size
    layer = {
        "pre_sa_norm": weight(width),
        "self_attention": attention(encoder),
        "post_sa_norm": weight(width),
        "mlp": _mlp(width, encoder.intermediate_size),
    }
    queries, keys = (
        heads * decoder.cross_head_dim
        for heads in (decoder.cross_num_attention_heads, decoder.cross_num_key_value_heads)
    )
    decoder_layer = {
        "pre_sa_norm": weight(wide),
        "self_attention": attention(decoder),
        "pre_ca_norm": weight(wide),
        "cross_attention": projections(wide, queries, keys, decoder.cross_hidden_size),
        "pre_mlp_norm": weight(wide),
        "mlp": _mlp(wide, decoder.intermediate_size),
    }
    return shapes(
        {
            "model.encoder.embedding": weight(encoder.vocab_size, width),
            "model.encoder.layers": [layer] * encoder.num_hidden_layers,
            "model.encoder.norm": weight(width),
            "model.decoder.embeddings.embed": weight(ids, wide),
            "model.decoder.layers": [decoder_layer] * decoder.num_hidden_layers,
            "model.decoder.norm": weight(wide),
            "logits_dense": weight(ids, wide),
        }
    )


def _mlp(width: int, inner: int) -> Module:
    return {"gate_up_proj": weight(2 * inner, width), "down_proj": weight(width, inner)}


def is_norm(name: str) -> bool:
    """Return True for a norm's weight, which stays float32 in every converted checkpoint."""
    return name.endswith("norm.weight")


def is_large(name: str) -> bool:
    """Return True for a tensor that quantization covers: one that a decoding step reads whole.

    Embeddings are not: a step reads single rows of them.
    """
    return name.endswith(("_proj.weight", "logits_dense.weight"))
