"""MARS5's diffusion network as Camb.AI publishes it: the canonical names, but for packed projections."""

from __future__ import annotations

from converters.maps.mars5_ar import encoder, kept
from converters.rules.plan import Drop, Rule
from tts_core.mars5.config import ResidualTransformerConfig

NAMES = (
    r"tfm\.(encoder|decoder)\.|residual_(encoder|decoder)\.|ref_embedder\.embs\.|text_embed\."
    r"|timestep_(encoder|decoder)_emb\.|(cond_|ref_)?pos_embedding\.|spk_(identity_emb|encoder)\."
)


def rules(config: ResidualTransformerConfig) -> list[Rule | Drop]:
    """Names are kept; packed projections become linear layers, which can be quantised."""
    linears = [f"timestep_{side}_emb.{i}" for side in ("encoder", "decoder") for i in (0, 2)]
    heads = ["residual_decoder.{}.0", "residual_decoder.{}.1"]
    names = [
        *[f"{kind}pos_embedding.alpha" for kind in ("", "cond_", "ref_")],
        *["text_embed.weight", "spk_identity_emb.weight"],
        *[f"{table}.embs.{{}}.weight" for table in ("ref_embedder", "residual_encoder")],
        *[f"{at}.{kind}" for at in (*linears, *heads) for kind in ("weight", "bias")],
        *encoder("spk_encoder"),
        *encoder("tfm.encoder"),
        *encoder("tfm.decoder", cross=True),
    ]
    return [kept(name) for name in names]
