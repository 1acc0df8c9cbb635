"""Map of Qwen3-TTS's codec, as published in `speech_tokenizer`."""

from __future__ import annotations

import re

from converters.maps.layouts import Layout, config_where
from converters.maps.mimi import FLAG, HALVES, book
from converters.rules.assignment import Drop, Rule
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig, parameter_shapes, read_published

NAMES = (
    r"encoder\.(encoder\.layers|encoder_transformer|downsample|quantizer)\."
    r"|decoder\.(pre_conv|pre_transformer|upsample|decoder|quantizer)\."
)
UNREAD = "a codebook of the encoder that the decoder does not have"


def rules(config: Qwen3CodecConfig) -> list[Rule | Drop]:
    """Map the published names, which are the canonical ones except for codebooks and their projections."""
    found = list[Rule | Drop]()
    for name in parameter_shapes(config):
        published = re.sub(r"^(decoder\.quantizer)\.(\w+)_residual_vector_quantizer", _half, name)
        if not name.endswith(".embed"):
            found.append(Rule(published, name))
        elif name.startswith("encoder."):
            at = name.removesuffix(".embed")
            found += book(at, "embed_sum", "initialized", at)
    for half, name in HALVES.items():
        at = f"decoder.quantizer.{name}.vq.layers.{{}}._codebook"
        ours = f"decoder.quantizer.{half}_residual_vector_quantizer.layers.{{}}.codebook"
        found += book(at, "embedding_sum", "initialized", ours)
    first = config.n_codebooks - config.encoder.n_semantic
    for q in range(first, first + config.n_unread):
        unread = f"encoder.quantizer.acoustic_residual_vector_quantizer.layers.{q}.codebook"
        found += [Drop(f"{unread}.{part}", UNREAD) for part in ("embed_sum", "cluster_usage")]
        found.append(Drop(f"{unread}.initialized", FLAG, optional=True))
    return found


def _half(found: re.Match[str]) -> str:
    return f"{found[1]}.{HALVES[found[2]]}"


LAYOUTS = {
    "qwen3_codec": Layout(
        "qwen3_codec",
        NAMES,
        rules,
        lambda found: read_published(found.json("config.json")),
        config_where(lambda config: config.get("model_type") == "qwen3_tts_tokenizer_12hz"),
    )
}
