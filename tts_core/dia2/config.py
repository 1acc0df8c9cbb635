"""Configuration of Dia2: numbers of both transformers, ids, delays, and which weights a stage uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from tts_core.config import MOST_LAYERS, Bounds, Config, Count, FileForm, Id, Sizes, at, heads_faults
from tts_core.shapes import Module, Shapes, attention, shapes, weight

ACTIVATIONS = {  # as published → ours
    **dict.fromkeys(("silu", "swish", "swiglu"), "silu"),
    **dict.fromkeys(("gelu", "geglu"), "gelu"),
    "relu": "relu",
    "linear": "linear",
}
GATED = ("silu", "linear")
Activation = Annotated[str, tuple(sorted({*ACTIVATIONS.values()}))]


def _activations(given: Any, found: object) -> Any:
    names = given or GATED
    return (
        tuple(ACTIVATIONS.get(str(name).lower(), name) for name in names)
        if isinstance(names, list | tuple)
        else names
    )


class Dia2StackConfig(Config, title="Dia2 config"):
    """Shape of one transformer."""

    num_hidden_layers: Count = at("n_layer")
    hidden_size: int = at("n_embd")
    intermediate_size: int = at("n_hidden")
    num_attention_heads: int = at("gqa_query_heads")
    num_key_value_heads: int = at("kv_heads")
    head_dim: int = at("gqa_head_dim")
    activations: tuple[Activation, Activation] = at(  # of gate and up
        "mlp_activations", otherwise=GATED, convert=_activations
    )

    def faults(self) -> Iterator[str]:
        """Check the heads."""
        yield from heads_faults(self.num_attention_heads, self.num_key_value_heads, self.head_dim)


class Dia2Config(Config, title="Dia2 config"):
    """Shape of a Dia2. Numbers only: no dtype, device or path.

    Q, the number of audio streams, is len(delay_pattern); the depformer has Q - 1 stages.
    """

    transformer: Dia2StackConfig = at("model.decoder")
    depformer: Dia2StackConfig = at("model.depformer")
    # width of the text embedding before its projections
    low_rank_dim: int = at("model.decoder.low_rank_dim", "model.decoder.n_embd")
    depformer_has_rope: bool = at("model.depformer.apply_rope", otherwise=True)
    depformer_has_text: bool = at("model.depformer.text_embedding", otherwise=True)
    rope_min_timescale: float = at("model.rope_min_timescale", otherwise=1)
    rope_max_timescale: float = at("model.rope_max_timescale", otherwise=10000)
    norm_eps: float = at("model.normalization_layer_epsilon", otherwise=1e-5)
    text_vocab_size: int = at("data.text_vocab_size")
    audio_vocab_size: int = at("data.audio_vocab_size")
    action_vocab_size: int = at("data.action_vocab_size")
    text_bos_id: Id
    text_pad_id: Id = at("data.text_pad_token_id")  # nothing now
    text_new_word_id: Id = at("data.text_new_word_token_id")
    text_zero_id: Id = at("data.text_zero_token_id", otherwise=7)  # first stream of the unconditional row
    audio_pad_id: Id = at("data.audio_pad_token_id", otherwise=lambda found: found["audio_vocab_size"] - 1)
    audio_bos_id: Id = at("data.audio_bos_token_id", otherwise=lambda found: found["audio_vocab_size"] - 2)
    delay_pattern: Sizes = at("data.delay_pattern")  # frames that each audio stream lags
    # words that the second text stream looks ahead; 0: it repeats the first
    second_stream_ahead: Annotated[int, Bounds(0, MOST_LAYERS)] = at("data.second_stream_ahead", otherwise=0)
    # set of weights of each stage, as published; may have gaps
    weights_schedule: tuple[Id, ...] = at(
        "runtime.weights_schedule", otherwise=lambda found: tuple(range(len(found["delay_pattern"]) - 1))
    )
    max_context_steps: int = at("runtime.max_context_steps", otherwise=1500)

    def faults(self) -> Iterator[str]:
        """Check ids, stages and rotary bases."""
        for vocabulary in ("text", "audio"):
            most = getattr(self, f"{vocabulary}_vocab_size")
            for name, value in vars(self).items():
                if name.startswith(vocabulary) and name.endswith("_id") and value >= most:
                    yield f"{name} {value} is not an id below {most}"
        if self.audio_pad_id == self.audio_bos_id or self.text_pad_id == self.text_new_word_id:
            yield "pad is also another special id"
        elif self.codebook_size < 1:
            yield "no audio id is left for codes"
        if self.action_vocab_size < 2:
            yield "action_vocab_size is below 2: an action is a new word or none"
        if self.n_streams < 2:
            yield f"{self.n_streams} audio streams; at least 2 are needed"
        elif len(self.weights_schedule) != self.n_streams - 1:
            yield (
                f"weights_schedule {self.weights_schedule!r:.60}; give a set for each of the "
                f"{self.n_streams - 1} stages"
            )
        heads, key_heads = self.depformer.num_attention_heads, self.depformer.num_key_value_heads
        if heads != key_heads:
            yield f"depformer with {key_heads} key heads for {heads} heads; in_proj has as many of each"
        if self.rope_max_timescale < self.rope_min_timescale:
            yield "rope_max_timescale is below rope_min_timescale"

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
        return tuple(self.weight_sets.index(item) for item in self.weights_schedule)


_FILE = FileForm(
    "config.json",
    equal={"data.channels": lambda config: config.n_streams + 2},
    needs=["data.channels", "runtime"],
)


def read_published(config: Mapping[str, Any], *, text_bos_id: int = 1) -> Dia2Config:
    """Read a published config.json. text_bos_id: the tokenizer's.

    Other names are ignored, as by the original's reader.
    """
    match config:
        case {"model": {"decoder": {**decoder}, **model}}:  # whose activations are in a block of their own
            linear = model.get("linear") or {}
            names = linear.get("mlp_activations") if isinstance(linear, Mapping) else linear
            config = {**config, "model": {**model, "decoder": {**decoder, "mlp_activations": names}}}
    return Dia2Config.read(_FILE, config, text_bos_id=text_bos_id)


def parameter_shapes(config: Dia2Config) -> Shapes:
    """Map canonical names to shapes, in the order of the network."""
    first, other = config.transformer, config.depformer
    width, narrow, ids = first.hidden_size, other.hidden_size, config.audio_vocab_size
    stages, sets = config.n_streams - 1, len(config.weight_sets)
    rows = other.num_attention_heads * other.head_dim
    packed = dict[str, Module]()
    for index in range(sets):
        packed |= {f"in_proj.{index}": weight(3 * rows, narrow), f"out_proj.{index}": weight(narrow, rows)}
    transformer = {
        "audio_embeds": [weight(ids, width)] * config.n_streams,
        "text_embed": _text(config.text_vocab_size, config.low_rank_dim, width),
        "layers": [_layer(first, "attn", attention(first))] * first.num_hidden_layers,
        "norm": weight(width),
        "action_head": weight(config.action_vocab_size, width),
        "cb0_head": weight(ids, width),
    }
    depformer = {
        "audio_embeds": [weight(ids, narrow)] * stages,
        "text_embed": _text(config.text_vocab_size, narrow, narrow) if config.depformer_has_text else {},
        "depformer_in": [weight(narrow, width)] * sets,
        "layers": [_layer(other, "self_attention", packed)] * other.num_hidden_layers,
        "norm": weight(narrow),
        "logits": [weight(ids, narrow)] * stages,
    }
    return shapes({"transformer": transformer, "depformer": depformer})


def _text(ids: int, inner: int, width: int) -> Module:
    projection = weight(width, inner)
    return {"embedding": weight(ids, inner), "main_proj": projection, "second_proj": projection}


def _layer(stack: Dia2StackConfig, name: str, attention: dict[str, Module]) -> Module:
    width, inner, norm = stack.hidden_size, stack.intermediate_size, weight(stack.head_dim)
    return {
        "pre_norm": weight(width),
        name: {**attention, "q_norm": norm, "k_norm": norm},
        "post_norm": weight(width),
        "mlp.wi": weight(2 * inner, width),
        "mlp.wo": weight(width, inner),
    }


def is_norm(name: str) -> bool:
    """Return True for weights of norms, and for the action head, which is as small."""
    return name.endswith("norm.weight") or name == "transformer.action_head.weight"


def is_large(name: str) -> bool:
    """Return True for the linear layers that are quantized: the transformer's, and its head of codes."""
    parts = ("transformer.layers.", "transformer.cb0_head.")
    return name.startswith(parts) and not is_norm(name)
