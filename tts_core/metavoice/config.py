"""Configurations and tensor names of MetaVoice-1B: first stage, second stage and speaker encoder.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0); names are those of its published checkpoints
without torch.compile's prefix `_orig_mod.`. Each of the two language models states its sizes in
`model_args`; the tensors must agree with them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from tts_core.config import Schema, check_numbers, mapping, reader
from tts_core.errors import CheckpointError
from tts_core.printable import named

CODEBOOK_SIZE = 1024  # codes of every codebook; in the second stage the next id is the padding
FIRST_STAGE_BOOKS = 2  # codebooks that the first stage predicts in turn
END_OF_AUDIO = FIRST_STAGE_BOOKS * CODEBOOK_SIZE  # first stage
LAYER_NORM_EPS = 1e-5  # of the second stage, always this value in upstream

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class FirstStageConfig(Schema):
    """Shape of the causal model of text and two codebooks. Numbers only: no dtype, device or path."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int  # text and audio ids together
    vocab_size: int  # codes of both codebooks, end of audio, text, end of text
    speaker_embedding_size: int
    norm_eps: float
    bias: bool  # of the layers' linears; RMS norms, speaker projection and head have none

    def __post_init__(self) -> None:
        check_numbers(self, "first stage config")
        _check(self, "first stage config")
        if self.vocab_size <= END_OF_AUDIO:
            raise CheckpointError(
                f"first stage config: {self.vocab_size} ids leave none for text above {END_OF_AUDIO}"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class SecondStageConfig(Schema):
    """Shape of the encoder that adds codebooks 2 and up. Numbers only: no dtype, device or path."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int  # the window, always filled
    vocab_sizes: tuple[int, ...]  # of the two input rows: text and codebook 0, codebook 1
    target_vocab_sizes: tuple[int, ...]  # one per predicted codebook
    speaker_embedding_size: int
    bias: bool  # of the layers' linears and norms; speaker projection and heads have none

    def __post_init__(self) -> None:
        check_numbers(self, "second stage config")
        _check(self, "second stage config")
        if len(self.vocab_sizes) != FIRST_STAGE_BOOKS or min(self.vocab_sizes) <= CODEBOOK_SIZE:
            raise CheckpointError(
                f"second stage config: vocab_sizes {self.vocab_sizes}: {FIRST_STAGE_BOOKS} rows are needed, "
                f"each with the {CODEBOOK_SIZE} codes and a padding id"
            )
        if len(set(self.target_vocab_sizes)) != 1 or self.target_vocab_sizes[0] <= CODEBOOK_SIZE:
            raise CheckpointError(
                f"second stage config: target_vocab_sizes {self.target_vocab_sizes}: each must be the same, "
                f"with the {CODEBOOK_SIZE} codes and a padding id"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def n_codebooks(self) -> int:
        """Codebooks in the second stage's output: those given to it and those it predicts."""
        return len(self.vocab_sizes) + len(self.target_vocab_sizes)


@dataclass(frozen=True)
class SpeakerEncoderConfig(Schema):
    """Shape of the LSTM speaker encoder. Numbers only: no dtype, device or path."""

    n_mels: int
    hidden_size: int
    num_hidden_layers: int
    speaker_embedding_size: int

    def __post_init__(self) -> None:
        check_numbers(self, "speaker encoder config")


def read_first_stage(
    checkpoint: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> FirstStageConfig:
    """Read the configuration from a published first_stage.pt.

    checkpoint: its top-level dict; `model` is not read.  shapes: published tensor name → shape, with or
    without `_orig_mod.`. Raises CheckpointError for another variant, and if `model_args` and tensors
    disagree, quoting both.
    """
    args = _arguments(checkpoint, "first stage")
    _require(args, {"causal": True, "norm_type": "rmsnorm", "nonlinearity_type": "swiglu"}, "first stage")
    if args["target_vocab_sizes"] is not None or len(args["vocab_sizes"]) != 1:
        raise CheckpointError(
            f"first stage: vocab_sizes {args['vocab_sizes']} → {args['target_vocab_sizes']}: a first stage "
            "has one vocabulary and predicts it; is this a second stage?"
        )
    inner = int(8 * args["n_embd"] / 3)  # two thirds of the usual 4 x width
    multiple = args["swiglu_multiple_of"]
    config = FirstStageConfig(
        intermediate_size=inner if multiple is None else -(-inner // multiple) * multiple,
        vocab_size=args["vocab_sizes"][0],
        norm_eps=args["rmsnorm_eps"],
        **_shared(checkpoint, args, "first stage"),
    )
    tied: Shapes = {"lm_heads.0.weight": (config.vocab_size, config.hidden_size)}
    _check_shapes("first stage", first_stage_parameter_shapes(config) | tied, shapes, optional=tuple(tied))
    return config


def read_second_stage(
    checkpoint: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> SecondStageConfig:
    """Read the configuration from a published second_stage.pt; like `read_first_stage`."""
    args = _arguments(checkpoint, "second stage")
    wanted = {"causal": False, "norm_type": "layernorm", "nonlinearity_type": "gelu"}
    _require(args, wanted, "second stage")
    training = mapping(checkpoint.get("config", {}), "second stage: config")
    if training.get("causal", args["causal"]) is not args["causal"]:
        raise CheckpointError(
            f"second stage: config says causal {training['causal']}, model_args {args['causal']}"
        )
    if args["target_vocab_sizes"] is None:
        raise CheckpointError("second stage: model_args has no target_vocab_sizes; is this a first stage?")
    config = SecondStageConfig(
        intermediate_size=4 * args["n_embd"],
        vocab_sizes=tuple(args["vocab_sizes"]),
        target_vocab_sizes=tuple(args["target_vocab_sizes"]),
        **_shared(checkpoint, args, "second stage"),
    )
    _check_shapes("second stage", second_stage_parameter_shapes(config), shapes)
    return config


def read_speaker_encoder(shapes: Mapping[str, tuple[int, ...]]) -> SpeakerEncoderConfig:
    """Read the configuration from the shapes of `model_state` in a published speaker_encoder.pt.

    The two similarity scalars, left over from training, are allowed.
    """
    first, linear = shapes.get("lstm.weight_ih_l0", ()), shapes.get("linear.weight", ())
    if len(first) != 2 or len(linear) != 2 or not all((*first, *linear)):
        raise CheckpointError(
            f"speaker encoder: lstm.weight_ih_l0 {first} and linear.weight {linear} are not those of an LSTM "
            "speaker encoder"
        )
    layers = sum(bool(re.fullmatch(r"lstm\.weight_ih_l\d+", name)) for name in shapes)
    config = SpeakerEncoderConfig(
        n_mels=first[1],
        hidden_size=linear[1],
        num_hidden_layers=layers,
        speaker_embedding_size=linear[0],
    )
    leftovers = ("similarity_weight", "similarity_bias")
    wanted = speaker_encoder_parameter_shapes(config) | dict.fromkeys(leftovers, (1,))
    _check_shapes("speaker encoder", wanted, shapes, optional=leftovers)
    return config


read_converted_first_stage = reader(FirstStageConfig, "config.json")
read_converted_second_stage = reader(SecondStageConfig, "second_stage/config.json")
read_converted_speaker_encoder = reader(SpeakerEncoderConfig, "speaker_encoder/config.json")


def first_stage_parameter_shapes(config: FirstStageConfig) -> Shapes:
    """Map canonical names to shapes, linears (out, in). The head shares the token embedding's tensor."""
    width = config.hidden_size
    shapes: Shapes = {
        "transformer.wtes.0.weight": (config.vocab_size, width),
        "transformer.wpe.weight": (config.max_position_embeddings, width),
    }
    for i in range(config.num_hidden_layers):
        at = f"transformer.h.{i}"
        shapes[f"{at}.ln_1.weight"] = shapes[f"{at}.ln_2.weight"] = (width,)
        shapes |= _attention(f"{at}.attn", width, bias=config.bias)
        for gate in ("w1", "w3"):
            shapes |= _linear(f"{at}.mlp.swiglu.{gate}", config.intermediate_size, width, bias=config.bias)
        shapes |= _linear(f"{at}.mlp.c_proj", width, config.intermediate_size, bias=config.bias)
    shapes["transformer.ln_f.weight"] = (width,)
    shapes["speaker_cond_pos.weight"] = (width, config.speaker_embedding_size)
    return shapes


def second_stage_parameter_shapes(config: SecondStageConfig) -> Shapes:
    """Map canonical names to shapes, linears (out, in)."""
    width = config.hidden_size
    norm: Shapes = {".weight": (width,)} | ({".bias": (width,)} if config.bias else {})
    shapes: Shapes = {f"transformer.wtes.{i}.weight": (n, width) for i, n in enumerate(config.vocab_sizes)}
    shapes["transformer.wpe.weight"] = (config.max_position_embeddings, width)
    for i in range(config.num_hidden_layers):
        at = f"transformer.h.{i}"
        shapes |= {f"{at}.{ln}{end}": shape for ln in ("ln_1", "ln_2") for end, shape in norm.items()}
        shapes |= _attention(f"{at}.attn", width, bias=config.bias)
        shapes |= _linear(f"{at}.mlp.c_fc", config.intermediate_size, width, bias=config.bias)
        shapes |= _linear(f"{at}.mlp.c_proj", width, config.intermediate_size, bias=config.bias)
    shapes |= {f"transformer.ln_f{end}": shape for end, shape in norm.items()}
    shapes["speaker_cond_pos.weight"] = (width, config.speaker_embedding_size)
    return shapes | {f"lm_heads.{i}.weight": (n, width) for i, n in enumerate(config.target_vocab_sizes)}


def speaker_encoder_parameter_shapes(config: SpeakerEncoderConfig) -> Shapes:
    """Map canonical names to shapes in PyTorch's layout; the four gates are i, f, g, o."""
    shapes: Shapes = {}
    hidden = config.hidden_size
    for i in range(config.num_hidden_layers):
        shapes[f"lstm.weight_ih_l{i}"] = (4 * hidden, hidden if i else config.n_mels)
        shapes[f"lstm.weight_hh_l{i}"] = (4 * hidden, hidden)
        shapes[f"lstm.bias_ih_l{i}"] = shapes[f"lstm.bias_hh_l{i}"] = (4 * hidden,)
    return shapes | _linear("linear", config.speaker_embedding_size, hidden, bias=True)


def is_norm(name: str) -> bool:
    """Return True for a norm's tensor. As in upstream, the first stage's norm weights have the network's
    dtype, but norms are computed in at least float32.
    """
    return ".ln_" in name


def is_quantisable(name: str) -> bool:
    """Return True for a tensor of the first stage that is quantized: the layers' linears.

    Token and position embeddings, head, norms and speaker projection keep the model's dtype.
    """
    return re.fullmatch(r"transformer\.h\.\d+\.(attn|mlp)\..+\.weight", name) is not None


_DEFAULTS: dict[str, Any] = {  # of upstream's GPTConfig
    "block_size": 1024,
    "n_layer": 12,
    "n_head": 12,
    "n_embd": 768,
    "bias": True,
    "causal": True,
    "spk_emb_on_text": True,
    "norm_type": "layernorm",
    "rmsnorm_eps": None,
    "nonlinearity_type": "gelu",
    "swiglu_multiple_of": None,
    "target_vocab_sizes": None,
}
_HARMLESS = ("dropout", "spkemb_dropout", "attn_kernel_type")  # training only, or no effect on results


def _arguments(checkpoint: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read `model_args` and add defaults; every size must be a positive whole number."""
    if "model_args" not in checkpoint:
        raise CheckpointError(f"{where}: model_args missing")
    given = mapping(checkpoint["model_args"], f"{where}: model_args")
    unknown = sorted(map(str, set(given) - set(_DEFAULTS) - {"vocab_sizes", *_HARMLESS}))
    if unknown:
        raise CheckpointError(f"{where}: model_args: unknown {named(unknown)}; this variant is not supported")
    args = _DEFAULTS | dict(given)
    lists = [args.get("vocab_sizes"), args["target_vocab_sizes"] or [1]]
    sizes = [args[name] for name in ("block_size", "n_layer", "n_head", "n_embd")]
    sizes += [args["swiglu_multiple_of"]] if args["swiglu_multiple_of"] is not None else []
    whole = all(isinstance(each, list | tuple) and each for each in lists) and all(
        type(size) is int and size > 0 for size in [*sizes, *(n for each in lists for n in each)]
    )
    if not whole:
        raise CheckpointError(f"{where}: model_args: sizes must be positive whole numbers, found {given}")
    if not mapping(checkpoint.get("meta", {}), f"{where}: meta").get("speaker_cond"):
        raise CheckpointError(
            f"{where}: meta: speaker_cond is not set; a model without a speaker is not supported"
        )
    return args


def _require(args: Mapping[str, Any], wanted: Mapping[str, Any], where: str) -> None:
    wrong = [
        f"{name} is {args[name]!r}, needed {value!r}"
        for name, value in {**wanted, "spk_emb_on_text": True}.items()
        if args[name] != value
    ]
    if wrong:
        raise CheckpointError(f"{where}: model_args: {'; '.join(wrong)}; this variant is not supported")


def _shared(checkpoint: Mapping[str, Any], args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Read the fields that both stages have."""
    return {
        "hidden_size": args["n_embd"],
        "num_hidden_layers": args["n_layer"],
        "num_attention_heads": args["n_head"],
        "max_position_embeddings": args["block_size"],
        "speaker_embedding_size": mapping(checkpoint["meta"], f"{where}: meta").get("speaker_emb_size"),
        "bias": args["bias"],
    }


def _check_shapes(
    where: str,
    wanted: Mapping[str, tuple[int, ...]],
    found: Mapping[str, tuple[int, ...]],
    optional: tuple[str, ...] = (),
) -> None:
    """Raise CheckpointError that lists differing names and shapes."""
    have = {name: tuple(shape) for name, shape in found.items()}
    faults = [
        f"{name}: {wanted.get(name, 'nothing')} by the configuration, {have.get(name, 'nothing')} in the file"
        for name in [*wanted, *(name for name in have if name not in wanted)]
        if wanted.get(name) != have.get(name) and not (name in optional and name not in have)
    ]
    if faults:
        more = f"; and {len(faults) - 8} more" if len(faults) > 8 else ""
        raise CheckpointError(f"{where}: configuration and tensors disagree: {'; '.join(faults[:8])}{more}")


def _check(config: FirstStageConfig | SecondStageConfig, where: str) -> None:
    """Check the fields that the two language models share."""
    flags = [name for name, kind in get_type_hints(type(config)).items() if kind is bool]
    wrong = [f"{name} {getattr(config, name)!r}" for name in flags if type(getattr(config, name)) is not bool]
    if wrong:
        raise CheckpointError(f"{where}: {', '.join(wrong)}: must be true or false")
    if config.hidden_size % config.num_attention_heads:
        raise CheckpointError(
            f"{where}: width {config.hidden_size} does not divide among {config.num_attention_heads} heads"
        )


def _linear(at: str, out: int, into: int, *, bias: bool) -> Shapes:
    return {f"{at}.weight": (out, into)} | ({f"{at}.bias": (out,)} if bias else {})


def _attention(at: str, width: int, *, bias: bool) -> Shapes:
    return _linear(f"{at}.c_attn", 3 * width, width, bias=bias) | _linear(
        f"{at}.c_proj", width, width, bias=bias
    )
