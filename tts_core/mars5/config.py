"""Configurations and tensor names of MARS5: the autoregressive `CodecLM` and the diffusion network
`ResidualTransformer`.

The checkpoints contain no configuration. Sizes are read from tensor shapes; numbers of heads and eps, which
no shape shows, are the published constants below, unless a json file next to the checkpoint sets them.

Names are the published ones of Camb-ai/MARS5-TTS (AGPL-3.0); none of its code was used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tts_core.config import Schema, check_numbers, mapping, reader
from tts_core.errors import CheckpointError
from tts_core.printable import named

Shapes = dict[str, tuple[int, ...]]

HEAD_DIM = 64  # of every head of the published checkpoints
LAYER_NORM_EPS = 4e-5  # of every LayerNorm except the output heads'
HEAD_NORM_EPS = 1e-5  # PyTorch's default, in the output heads
RMS_NORM_EPS = 1e-5
ROPE_THETA = 10000.0
SLIDING_WINDOW = 3000  # positions

_NORM = re.compile(r"(^|[._])norm\d?\.(weight|bias)$|^residual_decoder\.\d+\.0\.|pos_embedding\.alpha$")


@dataclass(frozen=True)
class CodecLMConfig(Schema):
    """Shape of the autoregressive network. Numbers only: no dtype, device or path."""

    vocab_size: int  # text ids, then speech ids
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    norm_eps: float
    rope_theta: float
    sliding_window: int  # positions
    speaker_layers: int
    speaker_heads: int
    speaker_intermediate_size: int
    speaker_norm_eps: float
    n_codebooks: int  # of the reference
    codebook_rows: int  # codes and one row for padding

    def __post_init__(self) -> None:
        check_numbers(self, "CodecLM config")
        _check_split("CodecLM config", self.hidden_size, self.num_attention_heads, self.speaker_heads)
        _check_tables("CodecLM config", self.hidden_size, self.n_codebooks)
        if self.head_dim % 2:
            raise CheckpointError(
                f"CodecLM config: head width {self.head_dim} is odd; rotary positions need pairs"
            )

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class ResidualTransformerConfig(Schema):
    """Shape of the diffusion network. Numbers only: no dtype, device or path."""

    text_rows: int  # of the text table: text ids and one more
    n_classes: int  # of the diffusion, the noise class included
    hidden_size: int
    intermediate_size: int
    encoder_layers: int
    decoder_layers: int
    num_attention_heads: int
    timestep_size: int  # width of a timestep's features
    speaker_layers: int
    speaker_heads: int
    speaker_intermediate_size: int
    n_codebooks: int  # of the reference and of the input
    n_output_codebooks: int
    codebook_rows: int  # codes and one row for padding
    norm_eps: float
    head_norm_eps: float  # of the output heads' norms

    def __post_init__(self) -> None:
        where = "ResidualTransformer config"
        check_numbers(self, where)
        _check_split(where, self.hidden_size, self.num_attention_heads, self.speaker_heads)
        _check_tables(where, self.hidden_size, self.n_codebooks)
        if self.timestep_size % 2:
            raise CheckpointError(
                f"{where}: timestep width {self.timestep_size} is odd; it needs pairs of sine and cosine"
            )
        if self.n_classes > self.codebook_rows:
            raise CheckpointError(
                f"{where}: {self.n_classes} classes do not fit tables of {self.codebook_rows} rows"
            )

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.hidden_size // self.num_attention_heads


def codec_lm_from_shapes(
    shapes: Mapping[str, Sequence[int]], beside: Mapping[str, Any] | None = None
) -> CodecLMConfig:
    """Read the configuration of an AR checkpoint. shapes: name → shape of its tensors.

    beside: the json file next to the checkpoint, if any. Heads are HEAD_DIM wide unless it sets their number.
    Raises CheckpointError for shapes that do not fit CodecLM, and for entries of `beside` that are unknown
    or contradict the shapes, naming each.
    """
    look = _Look(shapes, "CodecLM checkpoint")
    given = {} if beside is None else mapping(beside, "CodecLM json")
    vocab, width = look.shape("embed.weight", 2)
    rows, _ = look.shape("ref_chunked_emb.embs.0.weight", 2)
    heads = given.get("n_heads", max(width // HEAD_DIM, 1))
    config = CodecLMConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=look.shape("ar.layers.0.feed_forward.w1.weight", 2)[0],
        num_hidden_layers=look.count("ar.layers.{}.attention.wq.weight"),
        num_attention_heads=heads,
        norm_eps=given.get("rms_norm_eps", RMS_NORM_EPS),
        rope_theta=given.get("rope_theta", ROPE_THETA),
        sliding_window=given.get("sliding_window", SLIDING_WINDOW),
        speaker_layers=look.count("spk_encoder.layers.{}.linear2.weight"),
        speaker_heads=given.get("spk_n_heads", heads),
        speaker_intermediate_size=look.shape("spk_encoder.layers.0.linear2.weight", 2)[1],
        speaker_norm_eps=given.get("spk_layer_norm_eps", LAYER_NORM_EPS),
        n_codebooks=look.count("ref_chunked_emb.embs.{}.weight"),
        codebook_rows=rows,
    )
    _check_beside(
        given,
        "CodecLM json",
        model="ar",
        n_vocab=config.vocab_size,
        dim=config.hidden_size,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        n_kv_heads=config.num_attention_heads,
        head_dim=config.head_dim,
        ff_dim=config.intermediate_size,
        rms_norm_eps=config.norm_eps,
        rope_theta=config.rope_theta,
        rope_interleaved=True,
        sliding_window=config.sliding_window,
        spk_n_layers=config.speaker_layers,
        spk_n_heads=config.speaker_heads,
        spk_ff_dim=config.speaker_intermediate_size,
        spk_layer_norm_eps=config.speaker_norm_eps,
        n_codebooks=config.n_codebooks,
        codebook_rows=config.codebook_rows,
        codebook_emb_dim=config.hidden_size // config.n_codebooks,
        ref_pad_id=config.codebook_rows - 1,
        ignored=("n_text", "n_speech", "eos_id"),
    )
    return config


def residual_transformer_from_shapes(
    shapes: Mapping[str, Sequence[int]],
    beside: Mapping[str, Any] | None = None,
    *,
    heads: int | None = None,
) -> ResidualTransformerConfig:
    """Read the configuration of a NAR checkpoint.

    shapes: name → shape of its tensors.
    beside: the json file next to the checkpoint, if any.
    heads: of all three transformers; None uses the number in `beside`, else heads that are HEAD_DIM wide.
    Raises CheckpointError as `codec_lm_from_shapes` does.
    """
    look = _Look(shapes, "ResidualTransformer checkpoint")
    given = {} if beside is None else mapping(beside, "ResidualTransformer json")
    text_rows, width = look.shape("text_embed.weight", 2)
    chosen = given.get("n_heads", max(width // HEAD_DIM, 1)) if heads is None else heads
    config = ResidualTransformerConfig(
        text_rows=text_rows,
        n_classes=look.shape("residual_decoder.0.1.weight", 2)[0],
        hidden_size=width,
        intermediate_size=look.shape("tfm.encoder.layers.0.linear2.weight", 2)[1],
        encoder_layers=look.count("tfm.encoder.layers.{}.linear2.weight"),
        decoder_layers=look.count("tfm.decoder.layers.{}.linear2.weight"),
        num_attention_heads=chosen,
        timestep_size=look.shape("timestep_encoder_emb.0.weight", 2)[1],
        speaker_layers=look.count("spk_encoder.layers.{}.linear2.weight"),
        speaker_heads=given.get("spk_n_heads", chosen) if heads is None else heads,
        speaker_intermediate_size=look.shape("spk_encoder.layers.0.linear2.weight", 2)[1],
        n_codebooks=look.count("residual_encoder.embs.{}.weight"),
        n_output_codebooks=look.count("residual_decoder.{}.1.weight"),
        codebook_rows=look.shape("residual_encoder.embs.0.weight", 2)[0],
        norm_eps=given.get("layer_norm_eps", LAYER_NORM_EPS),
        head_norm_eps=given.get("head_layer_norm_eps", HEAD_NORM_EPS),
    )
    overridden = () if heads is None else ("n_heads", "spk_n_heads", "head_dim")
    _check_beside(
        {name: value for name, value in given.items() if name not in overridden},
        "ResidualTransformer json",
        model="nar",
        n_text_vocab=config.text_rows,
        n_quant=config.n_classes,
        dim=config.hidden_size,
        n_heads=config.num_attention_heads,
        head_dim=config.head_dim,
        ff_dim=config.intermediate_size,
        enc_n_layers=config.encoder_layers,
        dec_n_layers=config.decoder_layers,
        t_emb_dim=config.timestep_size,
        spk_n_layers=config.speaker_layers,
        spk_n_heads=config.speaker_heads,
        spk_ff_dim=config.speaker_intermediate_size,
        n_codebooks=config.n_codebooks,
        n_out_codebooks=config.n_output_codebooks,
        codebook_rows=config.codebook_rows,
        codebook_emb_dim=config.hidden_size // config.n_codebooks,
        ref_pad_id=config.codebook_rows - 1,
        layer_norm_eps=config.norm_eps,
        head_layer_norm_eps=config.head_norm_eps,
        ignored=("n_text",),
    )
    return config


read_converted_codec_lm = reader(CodecLMConfig, "config.json")
read_converted_residual_transformer = reader(ResidualTransformerConfig, "nar/config.json")


def codec_lm_parameter_shapes(config: CodecLMConfig) -> Shapes:
    """Map canonical names of a CodecLM's tensors to shapes; linears are (out, in)."""
    width, inner = config.hidden_size, config.intermediate_size
    shapes: Shapes = {"embed.weight": (config.vocab_size, width)}
    shapes |= _tables("ref_chunked_emb", config.n_codebooks, config.codebook_rows, width)
    shapes |= {"spk_identity_emb.weight": (1, width), "pos_embedding.alpha": (1,)}
    shapes |= _transformer(
        "spk_encoder", config.speaker_layers, width, config.speaker_intermediate_size, cross=False
    )
    for i in range(config.num_hidden_layers):
        at = f"ar.layers.{i}"
        shapes |= {f"{at}.attention.w{part}.weight": (width, width) for part in "qkvo"}
        shapes |= {f"{at}.feed_forward.w{part}.weight": (inner, width) for part in "13"}
        shapes[f"{at}.feed_forward.w2.weight"] = (width, inner)
        shapes |= {f"{at}.{part}_norm.weight": (width,) for part in ("attention", "ffn")}
    shapes |= {"ar.norm.weight": (width,), "ar.output.weight": (config.vocab_size, width)}
    return shapes


def residual_transformer_parameter_shapes(config: ResidualTransformerConfig) -> Shapes:
    """Map canonical names of a ResidualTransformer's tensors to shapes; linears are (out, in)."""
    width, inner, books = config.hidden_size, config.intermediate_size, config.n_codebooks
    shapes: Shapes = {"text_embed.weight": (config.text_rows, width)}
    for part in ("cond_pos_embedding", "pos_embedding", "ref_pos_embedding"):
        shapes[f"{part}.alpha"] = (1,)
    shapes |= _tables("ref_embedder", books, config.codebook_rows, width)
    shapes |= _tables("residual_encoder", books, config.codebook_rows, width)
    shapes["spk_identity_emb.weight"] = (1, width)
    shapes |= _transformer(
        "spk_encoder", config.speaker_layers, width, config.speaker_intermediate_size, cross=False
    )
    for part in ("timestep_encoder_emb", "timestep_decoder_emb"):
        shapes |= _linear(f"{part}.0", width, config.timestep_size) | _linear(f"{part}.2", width, width)
    shapes |= _transformer("tfm.encoder", config.encoder_layers, width, inner, cross=False)
    shapes |= _transformer("tfm.decoder", config.decoder_layers, width, inner, cross=True)
    for q in range(config.n_output_codebooks):
        shapes |= _norm(f"residual_decoder.{q}.0", width)
        shapes |= _linear(f"residual_decoder.{q}.1", config.n_classes, width)
    return shapes


def is_norm(name: str) -> bool:
    """Return True for tensors of norms and the scale of positions, which stay float32 in every checkpoint."""
    return _NORM.search(name) is not None


def _transformer(at: str, layers: int, width: int, inner: int, *, cross: bool) -> Shapes:
    """List pre-norm layers with gated feed-forwards and packed attention projections, and a final norm."""
    shapes: Shapes = {}
    for i in range(layers):
        layer = f"{at}.layers.{i}"
        for part in ("self_attn", "multihead_attn") if cross else ("self_attn",):
            shapes[f"{layer}.{part}.in_proj.weight"] = (3 * width, width)
            shapes[f"{layer}.{part}.in_proj.bias"] = (3 * width,)
            shapes |= _linear(f"{layer}.{part}.out_proj", width, width)
        shapes |= _linear(f"{layer}.linear2", width, inner)
        for norm in range(1, 4 if cross else 3):
            shapes |= _norm(f"{layer}.norm{norm}", width)
        shapes |= {f"{layer}.activation.{part}.weight": (inner, width) for part in "VW"}
    return shapes | _norm(f"{at}.norm", width)


def _tables(at: str, books: int, rows: int, width: int) -> Shapes:
    return {f"{at}.embs.{q}.weight": (rows, width // books) for q in range(books)}


def _linear(at: str, out: int, into: int) -> Shapes:
    return {f"{at}.weight": (out, into), f"{at}.bias": (out,)}


def _norm(at: str, width: int) -> Shapes:
    return {f"{at}.weight": (width,), f"{at}.bias": (width,)}


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


def _check_beside(given: Mapping[str, Any], where: str, *, ignored: Sequence[str], **known: Any) -> None:
    unknown = sorted(set(given) - set(known) - set(ignored))
    if unknown:
        raise CheckpointError(f"{where}: unknown fields {named(unknown)}")
    wrong = [
        f"{name} {given[name]!r:.40}, not {known[name]}"
        for name in known
        if given.get(name, known[name]) != known[name]
    ]
    if wrong:
        raise CheckpointError(f"{where}: does not fit its checkpoint: {'; '.join(wrong)}")


def _check_split(where: str, width: int, heads: int, speaker_heads: int) -> None:
    for count in (heads, speaker_heads):
        if width % count:
            raise CheckpointError(f"{where}: {count} heads do not divide a width of {width}")


def _check_tables(where: str, width: int, books: int) -> None:
    if width % books:
        raise CheckpointError(f"{where}: {books} codebooks do not divide a width of {width}")
