"""Map of Qwen3-TTS's codec, as published in `speech_tokenizer`."""

from __future__ import annotations

from collections.abc import Iterator

from converters.maps.layouts import Layout, config_where
from converters.maps.mimi import ENTRIES, FLAG, HALVES
from converters.rules.plan import Drop, Rule, kept
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig, parameter_shapes, read_published

NAMES = (
    r"encoder\.(encoder\.layers|encoder_transformer|downsample|quantizer)\."
    r"|decoder\.(pre_conv|pre_transformer|upsample|decoder|quantizer)\."
)
UNREAD = "a codebook of the encoder that the decoder does not have"


def rules(config: Qwen3CodecConfig) -> list[Rule | Drop]:
    """Map the published names, which are the canonical ones except for codebooks and their projections."""
    names = list(parameter_shapes(config))
    found = kept(name for name in names if ".quantizer." not in f".{name}")
    for half, name in HALVES.items():
        at = f"quantizer.{half}_residual_vector_quantizer"
        for side, theirs in (("encoder", at), ("decoder", f"quantizer.{name}")):
            projections = [f"{kind}_proj.weight" for kind in ("input", "output")]
            found += [
                Rule(f"{side}.{theirs}.{each}", f"{side}.{at}.{each}")
                for each in projections
                if f"{side}.{at}.{each}" in names
            ]
        book = f"decoder.quantizer.{name}.vq.layers.{{}}._codebook"
        sources = f"{book}.embedding_sum", f"{book}.cluster_usage"
        found += [
            Rule(sources, f"decoder.{at}.layers.{{}}.codebook.embed", ENTRIES),
            Drop(f"{book}.initialized", FLAG, optional=True),
            Drop(f"encoder.{at}.layers.{{}}.codebook.initialized", FLAG, optional=True),
        ]
    return [*found, *_encoder_books(config)]


def _encoder_books(config: Qwen3CodecConfig) -> Iterator[Rule | Drop]:
    counts = {"semantic": config.encoder.n_semantic}
    counts["acoustic"] = config.n_codebooks - counts["semantic"]
    for half, count in counts.items():
        at = f"encoder.quantizer.{half}_residual_vector_quantizer.layers"
        for q in range(count):
            book = f"{at}.{q}.codebook"
            yield Rule((f"{book}.embed_sum", f"{book}.cluster_usage"), f"{book}.embed", ENTRIES)
    for q in range(count, count + config.n_unread):
        for part in ("embed_sum", "cluster_usage"):
            yield Drop(
                f"encoder.quantizer.acoustic_residual_vector_quantizer.layers.{q}.codebook.{part}", UNREAD
            )


LAYOUTS = {
    "qwen3_codec": Layout(
        "qwen3_codec",
        NAMES,
        rules,
        lambda found: read_published(found.json("config.json")),
        config_where(lambda config: config.get("model_type") == "qwen3_tts_tokenizer_12hz"),
    )
}
