"""MARS5's autoregressive network as Camb.AI publishes it: the canonical names, but for packed projections."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from tts_core.mars5.config import CodecLMConfig

NAMES = (
    r"ar\.(layers|norm|output)\.|embed\.|ref_chunked_emb\.embs\.|pos_embedding\."
    r"|spk_(identity_emb|encoder)\."
)

_LAYER = [
    *[f"attention.w{part}.weight" for part in "qkvo"],
    *[f"feed_forward.w{part}.weight" for part in "123"],
    *[f"{part}_norm.weight" for part in ("attention", "ffn")],
]


def rules(config: CodecLMConfig) -> list[Rule | Drop]:
    """Names are kept; packed projections become linear layers, which can be quantised."""
    names = [
        *["embed.weight", "pos_embedding.alpha", "spk_identity_emb.weight", "ref_chunked_emb.embs.{}.weight"],
        *encoder("spk_encoder"),
        *[f"ar.layers.{{}}.{name}" for name in _LAYER],
        *["ar.norm.weight", "ar.output.weight"],
    ]
    return [kept(name) for name in names]


def kept(name: str) -> Rule:
    """The rule of a published name."""
    return Rule(name, name.replace("in_proj_", "in_proj."))


def encoder(at: str, *, cross: bool = False) -> list[str]:
    """Names in a stack of pre-norm layers, of which a decoder's have cross-attention too."""
    attention = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
    layer = [f"{kind}.{name}" for kind in ("self_attn", *["multihead_attn"] * cross) for name in attention]
    layer += [*_affine("linear2"), "activation.V.weight", "activation.W.weight"]
    layer += [name for norm in range(1, 4 if cross else 3) for name in _affine(f"norm{norm}")]
    return [*[f"{at}.layers.{{}}.{name}" for name in layer], *_affine(f"{at}.norm")]


def _affine(at: str) -> list[str]:
    return [f"{at}.weight", f"{at}.bias"]
