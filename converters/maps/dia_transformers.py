"""Dia as transformers saves it: the canonical names themselves."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from tts_core.dia.config import DiaConfig

NAMES = r"model\.(encoder|decoder)\.(embeddings?|layers|norm)\.|logits_dense\."

_ATTENTION = [f"{p}_proj" for p in "qkvo"]
_MLP = ["mlp.gate_up_proj", "mlp.down_proj"]
_LAYERS = {
    "encoder": ["pre_sa_norm", "post_sa_norm", *[f"self_attention.{p}" for p in _ATTENTION], *_MLP],
    "decoder": [
        *["pre_sa_norm", "pre_ca_norm", "pre_mlp_norm"],
        *[f"{kind}_attention.{p}" for kind in ("self", "cross") for p in _ATTENTION],
        *_MLP,
    ],
}


def rules(config: DiaConfig) -> list[Rule | Drop]:
    """Every name is kept."""
    names = [
        "model.encoder.embedding.weight",
        "model.decoder.embeddings.embed.weight",
        *[f"model.{part}.layers.{{}}.{layer}.weight" for part, layers in _LAYERS.items() for layer in layers],
        *[f"model.{part}.norm.weight" for part in _LAYERS],
        "logits_dense.weight",
    ]
    return [Rule(name, name) for name in names]
