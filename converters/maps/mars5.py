"""Maps of MARS5's two networks: Camb.AI's names are canonical except for packed projections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from converters.maps.layouts import Found, Layout, canonical
from tts_core.errors import CheckpointError
from tts_core.files.json_object import read_json
from tts_core.mars5.config import codec_lm_from_shapes, residual_transformer_from_shapes
from tts_core.mars5.model import TOKENIZERS

AR_NAMES = (
    r"ar\.(layers|norm|output)\.|embed\.|ref_chunked_emb\.embs\.|pos_embedding\."
    r"|spk_(identity_emb|encoder)\."
)

NAR_NAMES = (
    r"tfm\.(encoder|decoder)\.|residual_(encoder|decoder)\.|ref_embedder\.embs\.|text_embed\."
    r"|timestep_(encoder|decoder)_emb\.|(cond_|ref_)?pos_embedding\.|spk_(identity_emb|encoder)\."
)


def _packed(name: str) -> str:
    """Name a packed projection, a linear layer here, so that it can be quantized."""
    return name.replace("in_proj.", "in_proj_")


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
        "mars5",
        AR_NAMES,
        canonical("mars5", published=_packed),
        lambda found: codec_lm_from_shapes(found.checkpoint.shapes, _sizes(found, "ar")),
        documents=_tokenizers,
        entries=("vocab",),
    ),
    "mars5_nar": Layout(
        "mars5_nar",
        NAR_NAMES,
        canonical("mars5_nar", published=_packed),
        lambda found: residual_transformer_from_shapes(found.checkpoint.shapes, _sizes(found, "nar")),
        unread={"vocab": "the tokenizers, a copy of those in the AR's file"},
    ),
}
