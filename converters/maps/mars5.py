"""Maps of MARS5's two networks: Camb.AI's names are canonical except for packed projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from converters.maps.layouts import Found, Layout
from converters.rules.plan import Drop, Rule
from tts_core.errors import CheckpointError
from tts_core.files.json_object import read_json
from tts_core.mars5.config import (
    CodecLMConfig,
    ResidualTransformerConfig,
    codec_lm_from_shapes,
    residual_transformer_from_shapes,
)
from tts_core.mars5.spec import TOKENIZERS

AR_NAMES = (
    r"ar\.(layers|norm|output)\.|embed\.|ref_chunked_emb\.embs\.|pos_embedding\."
    r"|spk_(identity_emb|encoder)\."
)

_LAYER = [
    *[f"attention.w{part}.weight" for part in "qkvo"],
    *[f"feed_forward.w{part}.weight" for part in "123"],
    *[f"{part}_norm.weight" for part in ("attention", "ffn")],
]


def ar_rules(config: CodecLMConfig) -> list[Rule | Drop]:
    """Keep the names; packed projections become linear layers, which can be quantized."""
    names = [
        *["embed.weight", "pos_embedding.alpha", "spk_identity_emb.weight", "ref_chunked_emb.embs.{}.weight"],
        *_encoder("spk_encoder"),
        *[f"ar.layers.{{}}.{name}" for name in _LAYER],
        *["ar.norm.weight", "ar.output.weight"],
    ]
    return [_kept(name) for name in names]


def _kept(name: str) -> Rule:
    """Build the rule of a published name."""
    return Rule(name, name.replace("in_proj_", "in_proj."))


def _encoder(at: str, *, cross: bool = False) -> list[str]:
    """List the names in a stack of pre-norm layers; cross: a decoder's, with cross-attention."""
    attention = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    layer = [f"{kind}.{name}" for kind in ("self_attn", *["multihead_attn"] * cross) for name in attention]
    layer += [*_affine("linear2"), "activation.V.weight", "activation.W.weight"]
    layer += [name for norm in range(1, 4 if cross else 3) for name in _affine(f"norm{norm}")]
    return [*[f"{at}.layers.{{}}.{name}" for name in layer], *_affine(f"{at}.norm")]


def _affine(at: str) -> list[str]:
    return [f"{at}.weight", f"{at}.bias"]


NAR_NAMES = (
    r"tfm\.(encoder|decoder)\.|residual_(encoder|decoder)\.|ref_embedder\.embs\.|text_embed\."
    r"|timestep_(encoder|decoder)_emb\.|(cond_|ref_)?pos_embedding\.|spk_(identity_emb|encoder)\."
)


def nar_rules(config: ResidualTransformerConfig) -> list[Rule | Drop]:
    """Keep the names; packed projections become linear layers, which can be quantized."""
    linears = [f"timestep_{side}_emb.{i}" for side in ("encoder", "decoder") for i in (0, 2)]
    heads = ["residual_decoder.{}.0", "residual_decoder.{}.1"]
    names = [
        *[f"{kind}pos_embedding.alpha" for kind in ("", "cond_", "ref_")],
        *["text_embed.weight", "spk_identity_emb.weight"],
        *[f"{table}.embs.{{}}.weight" for table in ("ref_embedder", "residual_encoder")],
        *[f"{at}.{kind}" for at in (*linears, *heads) for kind in ("weight", "bias")],
        *_encoder("spk_encoder"),
        *_encoder("tfm.encoder"),
        *_encoder("tfm.decoder", cross=True),
    ]
    return [_kept(name) for name in names]


def _read_codec_lm(found: Found) -> CodecLMConfig:
    return codec_lm_from_shapes(found.checkpoint.shapes, _sizes(found, "ar"))


def _read_residual_transformer(found: Found) -> ResidualTransformerConfig:
    return residual_transformer_from_shapes(found.checkpoint.shapes, _sizes(found, "nar"))


def _sizes(found: Found, network: str) -> Mapping[str, Any] | None:
    """Read a network's sizes from --config, from the JSON named as its file, or from config.json."""
    given = found.hints.config
    stated = {} if given is None else read_json(given)
    if stated.get("model", "nar") == network and stated:
        return stated
    own, shared = found.json(f"{found.checkpoint.files[0].stem}.json"), found.json("config.json")
    return own or (shared if shared.get("model") == network else None)


def _tokenizers(found: Found) -> dict[str, str]:
    """Read the tokenizers from a safetensors header or a pickle's entry."""
    held = found.checkpoint.metadata.get("vocab", found.checkpoint.metadata)
    held = held if isinstance(held, Mapping) else {}
    texts = {name: held[name] for name in TOKENIZERS if isinstance(held.get(name), str)}
    if len(texts) < len(TOKENIZERS):
        lost = ", ".join(name for name in TOKENIZERS if name not in texts)
        raise CheckpointError(
            f"{found.checkpoint.files[0]}: no tokenizers ({lost}) in its metadata; fetch the published file"
        )
    return texts


LAYOUTS = {
    "mars5_ar": Layout(
        "mars5", AR_NAMES, ar_rules, _read_codec_lm, documents=_tokenizers, entries=("vocab",)
    ),
    "mars5_nar": Layout(
        "mars5_nar",
        NAR_NAMES,
        nar_rules,
        _read_residual_transformer,
        unread={"vocab": "the tokenizers, a copy of those in the AR's file"},
    ),
}
