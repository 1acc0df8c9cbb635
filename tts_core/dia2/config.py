"""Configuration of Dia2: numbers of both transformers, ids, delays, and which weights a stage uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from tts_core.config import MOST_LAYERS, Schema, check_numbers, exact_fields, mapping
from tts_core.errors import CheckpointError

ACTIVATIONS = {  # as published → ours
    **dict.fromkeys(("silu", "swish", "swiglu"), "silu"),
    **dict.fromkeys(("gelu", "geglu"), "gelu"),
    "relu": "relu",
    "linear": "linear",
}
GATED = ("silu", "linear")
Id = Annotated[int, "may be 0"]


@dataclass(frozen=True)
class Dia2StackConfig:
    """Shape of one transformer. activations: of gate and up, names of ACTIVATIONS."""

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    activations: tuple[str, ...]

    def __post_init__(self) -> None:
        check_numbers(self, "Dia2 config")
        if self.num_attention_heads % self.num_key_value_heads or self.head_dim % 2:
            raise CheckpointError(
                f"Dia2 config: {self.num_attention_heads} heads of {self.head_dim} for "
                f"{self.num_key_value_heads} key heads; give a multiple, and an even width"
            )
        names = self.activations
        known = {*ACTIVATIONS.values()}
        if not isinstance(names, tuple) or len(names) != 2 or any(name not in known for name in names):
            raise CheckpointError(
                f"Dia2 config: activations {names!r:.60}; give two of {', '.join(sorted(known))}"
            )


@dataclass(frozen=True)
class Dia2Config(Schema):
    """Shape of a Dia2. Numbers only: no dtype, device or path.

    Q, the number of audio streams, is len(delay_pattern); the depformer has Q - 1 stages.
    """

    transformer: Dia2StackConfig
    depformer: Dia2StackConfig
    low_rank_dim: int  # width of the text embedding before its projections
    depformer_has_rope: bool
    depformer_has_text: bool
    rope_min_timescale: float
    rope_max_timescale: float
    norm_eps: float
    text_vocab_size: int
    audio_vocab_size: int
    action_vocab_size: int
    text_bos_id: Id
    text_pad_id: Id  # nothing now
    text_new_word_id: Id
    text_zero_id: Id  # first stream of the unconditional row
    audio_pad_id: Id
    audio_bos_id: Id
    delay_pattern: tuple[int, ...]  # frames that each audio stream lags
    second_stream_ahead: Id  # words that the second text stream looks ahead; 0: it repeats the first
    weights_schedule: tuple[Id, ...]  # set of weights of each stage, as published; may have gaps
    max_context_steps: int

    def __post_init__(self) -> None:
        check_numbers(self, "Dia2 config")
        _check_ids(self)
        if len(self.delay_pattern) < 2:
            raise CheckpointError(
                f"Dia2 config: {len(self.delay_pattern)} audio streams; at least 2 are needed"
            )
        schedule = self.weights_schedule
        if len(schedule) != self.n_streams - 1 or not all(_is_id(place, 2**31) for place in schedule):
            raise CheckpointError(
                f"Dia2 config: weights_schedule {schedule!r:.60}; give a set for each of the "
                f"{self.n_streams - 1} stages"
            )
        if self.depformer.num_attention_heads != self.depformer.num_key_value_heads:
            raise CheckpointError(
                f"Dia2 config: depformer with {self.depformer.num_key_value_heads} key heads for "
                f"{self.depformer.num_attention_heads} heads; in_proj has as many of each"
            )
        if self.rope_max_timescale < self.rope_min_timescale:
            raise CheckpointError("Dia2 config: rope_max_timescale is below rope_min_timescale")
        for name in ("depformer_has_rope", "depformer_has_text"):
            if not isinstance(getattr(self, name), bool):
                raise CheckpointError(f"Dia2 config: {name} {getattr(self, name)!r:.40} is not true or false")

    @property
    def n_streams(self) -> int:
        """Number of audio streams, the codec's codebooks: Q."""
        return len(self.delay_pattern)

    @property
    def longest_delay(self) -> int:
        """Steps between a frame and its last code."""
        return max(self.delay_pattern)

    @property
    def codebook_size(self) -> int:
        """Codes of a codebook: the ids that the depformer may draw."""
        return min(self.audio_pad_id, self.audio_bos_id)

    @property
    def weight_sets(self) -> tuple[int, ...]:
        """Ids of the schedule, rising and each once: the places of the sets of weights in the network."""
        return tuple(sorted(set(self.weights_schedule)))

    @property
    def stage_sets(self) -> tuple[int, ...]:
        """Place of each stage's set of weights."""
        return tuple(self.weight_sets.index(each) for each in self.weights_schedule)


def _is_id(value: object, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _check_ids(config: Dia2Config) -> None:
    """Raise CheckpointError for an id outside its vocabulary, or two that must differ."""
    faults = []
    for name in [each.name for each in fields(config) if each.type == "Id" and each.name.endswith("_id")]:
        size = config.text_vocab_size if name.startswith("text") else config.audio_vocab_size
        if not _is_id(getattr(config, name), size):
            faults.append(f"{name} {getattr(config, name)!r:.40} is not an id below {size}")
    if config.audio_pad_id == config.audio_bos_id or config.text_pad_id == config.text_new_word_id:
        faults.append("pad is also another special id")
    elif not faults and config.codebook_size < 1:
        faults.append("no audio id is left for codes")
    if not _is_id(config.second_stream_ahead, MOST_LAYERS):
        faults.append(f"second_stream_ahead {config.second_stream_ahead!r:.40}")
    if config.action_vocab_size < 2:
        faults.append("action_vocab_size is below 2: an action is a new word or none")
    if faults:
        raise CheckpointError(f"Dia2 config: {'; '.join(faults)}")


def read_published(config: Mapping[str, Any], *, text_bos_id: int = 1) -> Dia2Config:
    """Read a published config.json. text_bos_id: the tokenizer's.

    Fields that are not listed in this file are ignored, as by the original's reader.
    Raises CheckpointError for missing and unusable ones.
    """
    config = mapping(config, "config.json")
    data, model, runtime = (_block(config, name) for name in ("data", "model", "runtime"))
    decoder, depformer = _block(model, "decoder", "model."), _block(model, "depformer", "model.")
    linear = mapping(model.get("linear") or {}, "config.json: model.linear")
    needed = {
        "data.": (data, _DATA),
        "model.decoder.": (decoder, _STACK),
        "model.depformer.": (depformer, _STACK),
    }
    missing = [f"{at}{name}" for at, (found, names) in needed.items() for name in names if name not in found]
    if missing:
        raise CheckpointError(f"config.json: {', '.join(missing)} missing")
    delays, size = _whole(data.get("delay_pattern") or [], "delay_pattern"), data["audio_vocab_size"]
    if data["channels"] != len(delays) + 2:
        raise CheckpointError(
            f"config.json: {data['channels']!r:.40} channels for {len(delays)} delays and two texts"
        )
    if not isinstance(size, int):
        raise CheckpointError(f"config.json: audio_vocab_size {size!r:.40} is not a whole number")
    schedule = runtime.get("weights_schedule")
    return Dia2Config(
        transformer=_stack(decoder, linear),
        depformer=_stack(depformer, depformer),
        low_rank_dim=decoder.get("low_rank_dim") or decoder["n_embd"],
        depformer_has_rope=depformer.get("apply_rope", True),
        depformer_has_text=depformer.get("text_embedding", True),
        rope_min_timescale=model.get("rope_min_timescale", 1),
        rope_max_timescale=model.get("rope_max_timescale", 10000),
        norm_eps=model.get("normalization_layer_epsilon", 1e-5),
        text_vocab_size=data["text_vocab_size"],
        audio_vocab_size=size,
        action_vocab_size=data["action_vocab_size"],
        text_bos_id=text_bos_id,
        text_pad_id=data["text_pad_token_id"],
        text_new_word_id=data["text_new_word_token_id"],
        text_zero_id=data.get("text_zero_token_id", 7),
        audio_pad_id=data.get("audio_pad_token_id", size - 1),
        audio_bos_id=data.get("audio_bos_token_id", size - 2),
        delay_pattern=delays,
        second_stream_ahead=data.get("second_stream_ahead", 0),
        weights_schedule=tuple(range(len(delays) - 1))
        if schedule is None
        else _whole(schedule, "weights_schedule"),
        max_context_steps=runtime.get("max_context_steps", 1500),
    )


_DATA = (
    "channels",
    "text_vocab_size",
    "audio_vocab_size",
    "action_vocab_size",
    "text_pad_token_id",
    "text_new_word_token_id",
)
_STACK = ("n_layer", "n_embd", "n_hidden", "gqa_query_heads", "kv_heads", "gqa_head_dim")


def _block(config: Mapping[str, Any], name: str, at: str = "") -> Mapping[str, Any]:
    return mapping(config.get(name), f"config.json: {at}{name}")


def _stack(block: Mapping[str, Any], activated: Mapping[str, Any]) -> Dia2StackConfig:
    """activated: the block with the activations; the transformer's are beside its own."""
    given = activated.get("mlp_activations") or GATED
    if not isinstance(given, list | tuple):
        raise CheckpointError(f"config.json: mlp_activations {given!r:.40} is not a list")
    names = tuple(ACTIVATIONS.get(str(name).lower(), str(name)) for name in given)
    return Dia2StackConfig(*(block[name] for name in _STACK), activations=names)


def _whole(values: object, name: str) -> tuple[int, ...]:
    if not isinstance(values, list | tuple) or not 0 < len(values) <= MOST_LAYERS:
        raise CheckpointError(f"config.json: {name} {values!r:.40} is not a short list of numbers")
    return tuple(values)


def read_converted(config: Mapping[str, Any]) -> Dia2Config:
    """Read our own schema; the error names every unknown and missing field."""
    own = exact_fields(Dia2Config, config, "config.json")
    for name in ("transformer", "depformer"):
        own[name] = Dia2StackConfig(**exact_fields(Dia2StackConfig, own[name], f"config.json: {name}"))
    return Dia2Config(**own)
