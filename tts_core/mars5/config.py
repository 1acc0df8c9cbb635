"""Configurations and tensor names of MARS5: the autoregressive `CodecLM` and the diffusion network
`ResidualTransformer`.

The checkpoints contain no configuration. Sizes are read from tensor shapes; numbers of heads and eps, which
no shape shows, are the published constants below, unless a json file next to the checkpoint sets them.

Names are the published ones of Camb-ai/MARS5-TTS (AGPL-3.0); none of its code was used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tts_core.config import Config, Count, FileForm, at
from tts_core.errors import CheckpointError
from tts_core.shapes import Module, Shapes, biased, shapes, weight

HEAD_DIM = 64  # of every head of the published checkpoints
LAYER_NORM_EPS = 4e-5  # of every LayerNorm except the output heads'
HEAD_NORM_EPS = 1e-5  # PyTorch's default, in the output heads
RMS_NORM_EPS = 1e-5
ROPE_THETA = 10000.0
SLIDING_WINDOW = 3000  # positions

_NORM = re.compile(r"(^|[._])norm\d?\.(weight|bias)$|^residual_decoder\.\d+\.0\.|pos_embedding\.alpha$")


class CodecLMConfig(Config, title="CodecLM config"):
    """Shape of the autoregressive network. Numbers only: no dtype, device or path."""

    vocab_size: int  # text ids, then speech ids
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: Count
    num_attention_heads: int = at("n_heads", otherwise=lambda found: max(found["hidden_size"] // HEAD_DIM, 1))
    norm_eps: float = at("rms_norm_eps", otherwise=RMS_NORM_EPS)
    rope_theta: float = at(otherwise=ROPE_THETA)
    sliding_window: int = at(otherwise=SLIDING_WINDOW)  # positions
    speaker_layers: Count
    speaker_heads: int = at("spk_n_heads", otherwise=lambda found: found["num_attention_heads"])
    speaker_intermediate_size: int
    speaker_norm_eps: float = at("spk_layer_norm_eps", otherwise=LAYER_NORM_EPS)
    n_codebooks: Count  # of the reference
    codebook_rows: int  # codes and one row for padding

    def faults(self) -> Iterator[str]:
        """Check the heads and tables."""
        yield from _uneven(self)
        if self.head_dim % 2:
            yield f"head width {self.head_dim} is odd; rotary positions need pairs"

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_attention_heads


class ResidualTransformerConfig(Config, title="ResidualTransformer config"):
    """Shape of the diffusion network. Numbers only: no dtype, device or path."""

    text_rows: int  # of the text table: text ids and one more
    n_classes: int  # of the diffusion, the noise class included
    hidden_size: int
    intermediate_size: int
    encoder_layers: Count
    decoder_layers: Count
    num_attention_heads: int = at("n_heads", otherwise=lambda found: max(found["hidden_size"] // HEAD_DIM, 1))
    timestep_size: int  # width of a timestep's features
    speaker_layers: Count
    speaker_heads: int = at("spk_n_heads", otherwise=lambda found: found["num_attention_heads"])
    speaker_intermediate_size: int
    n_codebooks: Count  # of the reference and of the input
    n_output_codebooks: Count
    codebook_rows: int  # codes and one row for padding
    norm_eps: float = at("layer_norm_eps", otherwise=LAYER_NORM_EPS)
    # of the output heads' norms
    head_norm_eps: float = at("head_layer_norm_eps", otherwise=HEAD_NORM_EPS)

    def faults(self) -> Iterator[str]:
        """Check the heads and tables."""
        yield from _uneven(self)
        if self.timestep_size % 2:
            yield f"timestep width {self.timestep_size} is odd; it needs pairs of sine and cosine"
        if self.n_classes > self.codebook_rows:
            yield f"{self.n_classes} classes do not fit tables of {self.codebook_rows} rows"

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_attention_heads


def _uneven(config: CodecLMConfig | ResidualTransformerConfig) -> Iterator[str]:
    width = config.hidden_size
    for heads in dict.fromkeys((config.num_attention_heads, config.speaker_heads)):
        if width % heads:
            yield f"{heads} heads do not divide a width of {width}"
    if width % config.n_codebooks:
        yield f"{config.n_codebooks} codebooks do not divide a width of {width}"


_SIZES: dict[str, Any] = {  # of the JSON file beside a checkpoint, which must be those of the tensors
    "dim": "hidden_size",
    "head_dim": "head_dim",
    "ff_dim": "intermediate_size",
    "spk_n_layers": "speaker_layers",
    "spk_ff_dim": "speaker_intermediate_size",
    "n_codebooks": "n_codebooks",
    "codebook_rows": "codebook_rows",
    "codebook_emb_dim": lambda config: config.hidden_size // config.n_codebooks,
    "ref_pad_id": lambda config: config.codebook_rows - 1,
}
_AR_FILE = FileForm(
    "CodecLM json",
    unused={"": ("n_text", "n_speech", "eos_id")},
    fixed={"model": "ar", "rope_interleaved": True},
    equal=_SIZES
    | {"n_vocab": "vocab_size", "n_layers": "num_hidden_layers", "n_kv_heads": "num_attention_heads"},
    support="it does not fit its checkpoint",
)
_NAR_FILE = FileForm(
    "ResidualTransformer json",
    unused={"": ("n_text",)},
    fixed={"model": "nar"},
    equal=_SIZES
    | {
        "n_text_vocab": "text_rows",
        "n_quant": "n_classes",
        "enc_n_layers": "encoder_layers",
        "dec_n_layers": "decoder_layers",
        "t_emb_dim": "timestep_size",
        "n_out_codebooks": "n_output_codebooks",
    },
    support="it does not fit its checkpoint",
)


def codec_lm_from_shapes(
    shapes: Mapping[str, Sequence[int]], beside: Mapping[str, Any] | None = None
) -> CodecLMConfig:
    """Read the configuration of an AR checkpoint. shapes: name → shape of its tensors.

    beside: the JSON file next to the checkpoint, if any. Heads are HEAD_DIM wide unless it sets their number.
    Raises CheckpointError for shapes that do not fit CodecLM, and for entries of `beside` that are unknown
    or contradict the shapes, naming each.
    """
    look = _Look(shapes, "CodecLM checkpoint")
    vocab, width = look.shape("embed.weight", 2)
    return CodecLMConfig.read(
        _AR_FILE,
        {} if beside is None else beside,
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=look.shape("ar.layers.0.feed_forward.w1.weight", 2)[0],
        num_hidden_layers=look.count("ar.layers.{}.attention.wq.weight"),
        speaker_layers=look.count("spk_encoder.layers.{}.linear2.weight"),
        speaker_intermediate_size=look.shape("spk_encoder.layers.0.linear2.weight", 2)[1],
        n_codebooks=look.count("ref_chunked_emb.embs.{}.weight"),
        codebook_rows=look.shape("ref_chunked_emb.embs.0.weight", 2)[0],
    )


def residual_transformer_from_shapes(
    shapes: Mapping[str, Sequence[int]], beside: Mapping[str, Any] | None = None
) -> ResidualTransformerConfig:
    """Read the configuration of a NAR checkpoint, as `codec_lm_from_shapes` does."""
    look = _Look(shapes, "ResidualTransformer checkpoint")
    text_rows, width = look.shape("text_embed.weight", 2)
    return ResidualTransformerConfig.read(
        _NAR_FILE,
        {} if beside is None else beside,
        text_rows=text_rows,
        n_classes=look.shape("residual_decoder.0.1.weight", 2)[0],
        hidden_size=width,
        intermediate_size=look.shape("tfm.encoder.layers.0.linear2.weight", 2)[1],
        encoder_layers=look.count("tfm.encoder.layers.{}.linear2.weight"),
        decoder_layers=look.count("tfm.decoder.layers.{}.linear2.weight"),
        timestep_size=look.shape("timestep_encoder_emb.0.weight", 2)[1],
        speaker_layers=look.count("spk_encoder.layers.{}.linear2.weight"),
        speaker_intermediate_size=look.shape("spk_encoder.layers.0.linear2.weight", 2)[1],
        n_codebooks=look.count("residual_encoder.embs.{}.weight"),
        n_output_codebooks=look.count("residual_decoder.{}.1.weight"),
        codebook_rows=look.shape("residual_encoder.embs.0.weight", 2)[0],
    )


def codec_lm_parameter_shapes(config: CodecLMConfig) -> Shapes:
    """Map canonical names of a CodecLM's tensors to shapes."""
    width, inner = config.hidden_size, config.intermediate_size
    layer = {
        **{f"attention.w{part}": weight(width, width) for part in "qkvo"},
        "feed_forward.w1": weight(inner, width),
        "feed_forward.w3": weight(inner, width),
        "feed_forward.w2": weight(width, inner),
        "attention_norm": weight(width),
        "ffn_norm": weight(width),
    }
    return shapes(
        {
            "embed": weight(config.vocab_size, width),
            "ref_chunked_emb": _tables(config),
            "spk_identity_emb": weight(1, width),
            "pos_embedding.alpha": (1,),
            "spk_encoder": _speaker_encoder(config),
            "ar.layers": [layer] * config.num_hidden_layers,
            "ar.norm": weight(width),
            "ar.output": weight(config.vocab_size, width),
        }
    )


def residual_transformer_parameter_shapes(config: ResidualTransformerConfig) -> Shapes:
    """Map canonical names of a ResidualTransformer's tensors to shapes."""
    width, inner = config.hidden_size, config.intermediate_size
    timestep = {"0": biased(width, config.timestep_size), "2": biased(width, width)}
    head = [biased(width), biased(config.n_classes, width)]
    return shapes(
        {
            "text_embed": weight(config.text_rows, width),
            **{f"{part}pos_embedding.alpha": (1,) for part in ("cond_", "", "ref_")},
            "ref_embedder": _tables(config),
            "residual_encoder": _tables(config),
            "spk_identity_emb": weight(1, width),
            "spk_encoder": _speaker_encoder(config),
            "timestep_encoder_emb": timestep,
            "timestep_decoder_emb": timestep,
            "tfm.encoder": _transformer(config.encoder_layers, width, inner, ["self_attn"]),
            "tfm.decoder": _transformer(config.decoder_layers, width, inner, ["self_attn", "multihead_attn"]),
            "residual_decoder": [head] * config.n_output_codebooks,
        }
    )


def is_norm(name: str) -> bool:
    """Return True for tensors of norms and the scale of positions, which stay float32 in every checkpoint."""
    return _NORM.search(name) is not None


def _transformer(layers: int, width: int, inner: int, attentions: list[str]) -> Module:
    """Build pre-norm layers with gated feed-forwards and packed attention projections, and a final norm."""
    packed = {"in_proj": biased(3 * width, width), "out_proj": biased(width, width)}
    layer = {
        **dict.fromkeys(attentions, packed),
        "linear2": biased(width, inner),
        **{f"norm{i}": biased(width) for i in range(1, len(attentions) + 2)},
        "activation.V": weight(inner, width),
        "activation.W": weight(inner, width),
    }
    return {"layers": [layer] * layers, "norm": biased(width)}


def _speaker_encoder(config: CodecLMConfig | ResidualTransformerConfig) -> Module:
    inner = config.speaker_intermediate_size
    return _transformer(config.speaker_layers, config.hidden_size, inner, ["self_attn"])


def _tables(config: CodecLMConfig | ResidualTransformerConfig) -> Module:
    books = config.n_codebooks
    return {"embs": [weight(config.codebook_rows, config.hidden_size // books)] * books}


class _Look:
    """A checkpoint's shapes; looking up a missing or unexpected one raises an error that names it."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], where: str):
        self.shapes, self.where = shapes, where

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        found = self.shapes.get(name)
        if found is None or len(found) != rank:
            what = "missing" if found is None else f"has shape {tuple(found)}, expected {rank} axes"
            raise CheckpointError(f"{self.where}: tensor {name} {what}")
        return tuple(found)

    def count(self, pattern: str) -> int:
        """Count the tensors that match a pattern, numbered from 0."""
        number = 0
        while pattern.format(number) in self.shapes:
            number += 1
        if not number:
            raise CheckpointError(f"{self.where}: tensor {pattern.format(0)} missing")
        return number
