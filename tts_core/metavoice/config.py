"""Configurations and tensor names of MetaVoice-1B: first stage, second stage and speaker encoder.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0); names are those of its published checkpoints
without torch.compile's prefix `_orig_mod.`. Each of the two language models states its sizes in
`model_args`; the tensors must agree with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tts_core.config import Config, Count, FileForm, Sizes, at
from tts_core.errors import CheckpointError
from tts_core.shapes import Module, Shapes, biased, shapes, weight

CODEBOOK_SIZE = 1024  # codes of every codebook; in the second stage the next id is the padding
FIRST_STAGE_BOOKS = 2  # codebooks that the first stage predicts in turn
END_OF_AUDIO = FIRST_STAGE_BOOKS * CODEBOOK_SIZE  # first stage
LAYER_NORM_EPS = 1e-5  # of the second stage, always this value in upstream

_ARGS = "model_args"  # without an entry, upstream's default counts


def _inner_width(multiple: Any, found: Any) -> int:
    """Compute two thirds of the usual 4 x width, rounded up to a multiple."""
    inner = int(8 * found["hidden_size"] / 3)
    if type(multiple) is not int or multiple < 1:
        raise ValueError
    return -(-inner // multiple) * multiple


def _only(sizes: Any, found: Any) -> Any:
    if not isinstance(sizes, list | tuple) or len(sizes) != 1:
        raise CheckpointError(f"{sizes!r:.40}: a first stage has one vocabulary; is this a second stage?")
    return sizes[0]


class FirstStageConfig(Config, title="first stage config"):
    """Shape of the causal model of text and two codebooks. Numbers only: no dtype, device or path."""

    hidden_size: int = at(f"{_ARGS}.n_embd", otherwise=768)
    intermediate_size: int = at(
        f"{_ARGS}.swiglu_multiple_of", otherwise=partial(_inner_width, 1), convert=_inner_width
    )
    num_hidden_layers: Count = at(f"{_ARGS}.n_layer", otherwise=12)
    num_attention_heads: int = at(f"{_ARGS}.n_head", otherwise=12)
    max_position_embeddings: int = at(f"{_ARGS}.block_size", otherwise=1024)  # text and audio ids together
    vocab_size: int = at(f"{_ARGS}.vocab_sizes", convert=_only)  # both codebooks, end of audio, text, its end
    speaker_embedding_size: int = at("meta.speaker_emb_size")
    norm_eps: float = at(f"{_ARGS}.rmsnorm_eps")
    # of the layers' linears; RMS norms, speaker projection and head have none
    bias: bool = at(f"{_ARGS}.bias", otherwise=True)

    def faults(self) -> Iterator[str]:
        """Check the heads, and that ids are left for text."""
        yield from _uneven(self)
        if self.vocab_size <= END_OF_AUDIO:
            yield f"{self.vocab_size} ids leave none for text above {END_OF_AUDIO}"

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads


class SecondStageConfig(Config, title="second stage config"):
    """Shape of the encoder that adds codebooks 2 and up. Numbers only: no dtype, device or path."""

    hidden_size: int = at(f"{_ARGS}.n_embd", otherwise=768)
    intermediate_size: int = at(f"{_ARGS}.n_embd", otherwise=3072, convert=lambda width, _: 4 * width)
    num_hidden_layers: Count = at(f"{_ARGS}.n_layer", otherwise=12)
    num_attention_heads: int = at(f"{_ARGS}.n_head", otherwise=12)
    max_position_embeddings: int = at(f"{_ARGS}.block_size", otherwise=1024)  # the window, always filled
    vocab_sizes: Sizes = at(f"{_ARGS}.vocab_sizes")  # of the two input rows: text and codebook 0, codebook 1
    target_vocab_sizes: Sizes = at(f"{_ARGS}.target_vocab_sizes")  # one per predicted codebook
    speaker_embedding_size: int = at("meta.speaker_emb_size")
    # of the layers' linears and norms; speaker projection and heads have none
    bias: bool = at(f"{_ARGS}.bias", otherwise=True)

    def faults(self) -> Iterator[str]:
        """Check the heads, and that codes and padding have ids."""
        yield from _uneven(self)
        inputs, targets = self.vocab_sizes, self.target_vocab_sizes
        if len(inputs) != FIRST_STAGE_BOOKS or min(inputs) <= CODEBOOK_SIZE:
            yield (
                f"vocab_sizes {inputs}: {FIRST_STAGE_BOOKS} rows are needed, each with the {CODEBOOK_SIZE} "
                "codes and a padding id"
            )
        if len(set(targets)) != 1 or targets[0] <= CODEBOOK_SIZE:
            yield (
                f"target_vocab_sizes {targets}: each must be the same, with the {CODEBOOK_SIZE} codes and a "
                "padding id"
            )

    @property
    def head_dim(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def n_codebooks(self) -> int:
        """Codebooks in the second stage's output: those given to it and those it predicts."""
        return len(self.vocab_sizes) + len(self.target_vocab_sizes)


def _uneven(config: FirstStageConfig | SecondStageConfig) -> Iterator[str]:
    if config.hidden_size % config.num_attention_heads:
        yield f"width {config.hidden_size} does not divide among {config.num_attention_heads} heads"


class SpeakerEncoderConfig(Config, title="speaker encoder config"):
    """Shape of the LSTM speaker encoder. Numbers only: no dtype, device or path."""

    n_mels: int
    hidden_size: int
    num_hidden_layers: Count
    speaker_embedding_size: int


_UNUSED = {_ARGS: ("dropout", "spkemb_dropout", "attn_kernel_type")}  # of training, or no effect on results
_SPEAKER = {f"{_ARGS}.spk_emb_on_text": True, "meta.speaker_cond": True}
_FIRST = {"causal": True, "norm_type": "rmsnorm", "nonlinearity_type": "swiglu", "target_vocab_sizes": None}
_SECOND = {"causal": False, "norm_type": "layernorm", "nonlinearity_type": "gelu"}
_FIRST_FILE = FileForm(
    "first stage",
    unused=_UNUSED,
    fixed=_SPEAKER | {f"{_ARGS}.{name}": value for name, value in _FIRST.items()},
    needs=("meta.speaker_cond", f"{_ARGS}.norm_type", f"{_ARGS}.nonlinearity_type"),
    support="this variant is not supported; is it a second stage?",
)
_SECOND_FILE = FileForm(
    "second stage",
    unused={_ARGS: (*_UNUSED[_ARGS], "rmsnorm_eps", "swiglu_multiple_of")},  # of a first stage
    fixed=_SPEAKER | {f"{_ARGS}.{name}": value for name, value in _SECOND.items()} | {"config.causal": False},
    needs=("meta.speaker_cond", f"{_ARGS}.causal"),
    support="this variant is not supported; is it a first stage?",
)


def read_first_stage(
    checkpoint: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> FirstStageConfig:
    """Read the configuration from a published first_stage.pt.

    checkpoint: its top-level dict; `model` is not read.  shapes: published tensor name → shape, with or
    without `_orig_mod.`. Raises CheckpointError for another variant, and if `model_args` and tensors
    disagree, quoting both.
    """
    config = FirstStageConfig.read(_FIRST_FILE, checkpoint)
    tied: Shapes = {"lm_heads.0.weight": (config.vocab_size, config.hidden_size)}
    _check_shapes("first stage", first_stage_parameter_shapes(config) | tied, shapes, optional=tuple(tied))
    return config


def read_second_stage(
    checkpoint: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> SecondStageConfig:
    """Read the configuration from a published second_stage.pt; like `read_first_stage`."""
    config = SecondStageConfig.read(_SECOND_FILE, checkpoint)
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


def first_stage_parameter_shapes(config: FirstStageConfig) -> Shapes:
    """Map canonical names to shapes. The head shares the token embedding's tensor."""
    width, inner, bias = config.hidden_size, config.intermediate_size, config.bias
    layer = {
        "ln_1": weight(width),
        "ln_2": weight(width),
        "attn": _attention(width, bias=bias),
        "mlp.swiglu.w1": _linear(inner, width, bias=bias),
        "mlp.swiglu.w3": _linear(inner, width, bias=bias),
        "mlp.c_proj": _linear(width, inner, bias=bias),
    }
    return shapes(
        {
            "transformer.wtes": [weight(config.vocab_size, width)],
            "transformer.wpe": weight(config.max_position_embeddings, width),
            "transformer.h": [layer] * config.num_hidden_layers,
            "transformer.ln_f": weight(width),
            "speaker_cond_pos": weight(width, config.speaker_embedding_size),
        }
    )


def second_stage_parameter_shapes(config: SecondStageConfig) -> Shapes:
    """Map canonical names to shapes."""
    width, inner, bias = config.hidden_size, config.intermediate_size, config.bias
    norm = biased(width) if bias else weight(width)
    layer = {
        "ln_1": norm,
        "ln_2": norm,
        "attn": _attention(width, bias=bias),
        "mlp.c_fc": _linear(inner, width, bias=bias),
        "mlp.c_proj": _linear(width, inner, bias=bias),
    }
    return shapes(
        {
            "transformer.wtes": [weight(rows, width) for rows in config.vocab_sizes],
            "transformer.wpe": weight(config.max_position_embeddings, width),
            "transformer.h": [layer] * config.num_hidden_layers,
            "transformer.ln_f": norm,
            "speaker_cond_pos": weight(width, config.speaker_embedding_size),
            "lm_heads": [weight(rows, width) for rows in config.target_vocab_sizes],
        }
    )


def speaker_encoder_parameter_shapes(config: SpeakerEncoderConfig) -> Shapes:
    """Map canonical names to shapes; the four gates are i, f, g, o."""
    hidden = config.hidden_size
    found: dict[str, Module] = {}
    for i in range(config.num_hidden_layers):
        found[f"lstm.weight_ih_l{i}"] = (4 * hidden, hidden if i else config.n_mels)
        found[f"lstm.weight_hh_l{i}"] = (4 * hidden, hidden)
        found[f"lstm.bias_ih_l{i}"] = found[f"lstm.bias_hh_l{i}"] = (4 * hidden,)
    return shapes({**found, "linear": biased(config.speaker_embedding_size, hidden)})


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


def _attention(width: int, *, bias: bool) -> Module:
    return {"c_attn": _linear(3 * width, width, bias=bias), "c_proj": _linear(width, width, bias=bias)}


def _linear(out: int, into: int, *, bias: bool) -> Module:
    return biased(out, into) if bias else weight(out, into)
