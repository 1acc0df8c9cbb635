"""Maps of Mimi: transformers' layout as published, and kyutai's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from converters.maps.layouts import Found, Layout, config_where
from converters.rules.assignment import Drop, Rule, same_names
from converters.rules.transforms import chain, even_rows_first, mean_of_sums, split_rows
from tts_core.codecs.mimi import (
    MIMI_24KHZ,
    MimiConfig,
    parameter_shapes,
    read_transformers,
    transposed_layers,
)

ENTRIES = mean_of_sums(1e-5)  # of a codebook: the sum of what chose it, and how many that were
FLAG = "tells training that the codebook has its first entries"
HALVES = {"semantic": "rvq_first", "acoustic": "rvq_rest"}

TRANSFORMERS_NAMES = (
    r"(encoder|decoder)\.layers\.\d+\.(block\.\d+\.)?conv\.(weight|bias)$"
    r"|(encoder|decoder)_transformer\.layers\.|(downsample|upsample)\.conv\.weight$"
    r"|quantizer\.(semantic|acoustic)_residual_vector_quantizer\."
)
_LAYER = (  # of a transformer: canonical name, kyutai's
    ("input_layernorm.weight", "norm1.weight"),
    ("input_layernorm.bias", "norm1.bias"),
    ("post_attention_layernorm.weight", "norm2.weight"),
    ("post_attention_layernorm.bias", "norm2.bias"),
    ("self_attn.o_proj.weight", "self_attn.out_proj.weight"),
    ("mlp.fc1.weight", "linear1.weight"),
    ("mlp.fc2.weight", "linear2.weight"),
    ("self_attn_layer_scale.scale", "layer_scale_1.scale"),
    ("mlp_layer_scale.scale", "layer_scale_2.scale"),
)


def book(theirs: str, total: str, flag: str, ours: str) -> list[Rule | Drop]:
    """Map a codebook. total, flag: names of the sum of entries, and of what tells training that they are."""
    sources = (f"{theirs}.{total}", f"{theirs}.cluster_usage")
    return [Rule(sources, f"{ours}.embed", ENTRIES), Drop(f"{theirs}.{flag}", FLAG, optional=True)]


def transformers_rules(config: MimiConfig) -> list[Rule | Drop]:
    """Map transformers' names, which are the canonical ones except for the codebooks."""
    found = same_names(name for name in parameter_shapes(config) if not name.endswith(".embed"))
    for half in HALVES:
        at = f"quantizer.{half}_residual_vector_quantizer.layers.{{}}.codebook"
        found += book(at, "embed_sum", "initialized", at)
    return found


KYUTAI_NAMES = (
    r"(encoder|decoder)\.model\.\d+\.(block\.\d+\.)?(conv\.conv|convtr\.convtr)\.(weight|bias)$"
    r"|(encoder|decoder)_transformer\.transformer\.layers\.|(downsample\.conv|upsample\.convtr)\."
    r"|quantizer\.rvq_(first|rest)\."
)


def kyutai_rules(config: MimiConfig) -> list[Rule | Drop]:
    """Map kyutai's names; its rotary pairs are interleaved, and query, key and value are one matrix."""
    transposed = transposed_layers(config)
    found: list[Rule | Drop] = []
    for side in ("encoder", "decoder"):
        special = transposed if side == "decoder" else []
        for kind in ("weight", "bias"):
            for part in ("block.1.", "block.3."):
                found.append(
                    Rule(f"{side}.model.{{}}.{part}conv.conv.{kind}", f"{side}.layers.{{}}.{part}conv.{kind}")
                )
            found += [
                Rule(f"{side}.model.{at}.convtr.convtr.{kind}", f"{side}.layers.{at}.conv.{kind}")
                for at in special
            ]
            found.append(Rule(f"{side}.model.{{}}.conv.conv.{kind}", f"{side}.layers.{{}}.conv.{kind}"))
        theirs, ours = f"{side}_transformer.transformer.layers.{{}}", f"{side}_transformer.layers.{{}}"
        found += [Rule(f"{theirs}.{name}", f"{ours}.{own}") for own, name in _LAYER]
        found.append(_attention(config, theirs, ours))
    found += [
        Rule("downsample.conv.conv.conv.weight", "downsample.conv.weight"),
        Rule("upsample.convtr.convtr.convtr.weight", "upsample.conv.weight"),
    ]
    for half, name in HALVES.items():
        theirs, ours = f"quantizer.{name}", f"quantizer.{half}_residual_vector_quantizer"
        if config.is_projected:
            found += [
                Rule(f"{theirs}.{end}_proj.weight", f"{ours}.{end}_proj.weight")
                for end in ("input", "output")
            ]
        at = f"{theirs}.vq.layers.{{}}._codebook"
        found += book(at, "embedding_sum", "_initialized", f"{ours}.layers.{{}}.codebook")
    return found


def _attention(config: MimiConfig, theirs: str, ours: str) -> Rule:
    rows, key_rows = (
        heads * config.head_dim for heads in (config.num_attention_heads, config.num_key_value_heads)
    )
    query, key, value = split_rows(rows, key_rows, key_rows)
    rotary = even_rows_first(config.head_dim)
    return Rule(
        f"{theirs}.self_attn.in_proj_weight",
        tuple(f"{ours}.self_attn.{p}_proj.weight" for p in "qkv"),
        (chain(query, rotary), chain(key, rotary), value),
    )


def read_kyutai(found: Found) -> MimiConfig:
    """Read transformers' config.json beside the file, if any; else take the sizes of the published model.

    kyutai's file comes without a configuration, and its tensors do not show heads, window and rates.
    """
    config = found.json("config.json")
    return read_transformers(config) if _is_mimi(config) else MIMI_24KHZ


def _is_mimi(config: Mapping[str, Any]) -> bool:
    return config.get("model_type") == "mimi"


LAYOUTS = {
    "mimi_transformers": Layout(
        "mimi",
        TRANSFORMERS_NAMES,
        transformers_rules,
        lambda found: read_transformers(found.json("config.json")),
        config_where(_is_mimi),
    ),
    "mimi_kyutai": Layout("mimi", KYUTAI_NAMES, kyutai_rules, read_kyutai),
}
