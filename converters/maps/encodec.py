"""Maps of EnCodec: facebookresearch's layout (.th) and transformers', with or without weight norm."""

from __future__ import annotations

from converters.maps.layouts import Found, Layout
from converters.rules.assignment import Drop, Rule, convolution, same_names
from tts_core.codecs.encodec import EncodecConfig, from_shapes, read_transformers, transposed_layers

_TRAINING = dict.fromkeys(
    ("inited", "cluster_size", "embed_avg"), "the codebook's running mean, for training"
)

FACEBOOK_NAMES = (
    r"(encoder|decoder)\.model\.\d+\.((block\.\d+\.|shortcut\.)?conv\.conv|convtr\.convtr|lstm)\."
    r"|quantizer\.vq\.layers\.\d+\._codebook\."
)


def facebook_rules(config: EncodecConfig) -> list[Rule | Drop]:
    """Map facebookresearch's names to canonical names: the same indices without one wrapper's level."""
    stages = len(config.upsampling_ratios)
    found: list[Rule | Drop] = []
    for side, residuals in (("encoder", 1), ("decoder", 4)):
        for at in (residuals + 3 * i for i in range(stages)):
            for part in ("block.1", "block.3", "shortcut"):
                found += convolution(f"{side}.model.{at}.{part}.conv.conv", f"{side}.layers.{at}.{part}.conv")
    for at in range(0, 3 * stages + 4, 3):
        found += convolution(f"encoder.model.{at}.conv.conv", f"encoder.layers.{at}.conv")
        wrapper = "convtr.convtr" if at in transposed_layers(config) else "conv.conv"
        found += convolution(f"decoder.model.{at}.{wrapper}", f"decoder.layers.{at}.conv")
    for side, at in (("encoder", 3 * stages + 1), ("decoder", 1)):
        for name in (f"{part}_{kind}_l{{}}" for part in ("weight", "bias") for kind in ("ih", "hh")):
            found.append(Rule(f"{side}.model.{at}.lstm.{name}", f"{side}.layers.{at}.lstm.{name}"))
    books = "quantizer.vq.layers.{}._codebook"
    found.append(Rule(f"{books}.embed", "quantizer.layers.{}.codebook.embed"))
    return [*found, *(Drop(f"{books}.{name}", why, optional=True) for name, why in _TRAINING.items())]


TRANSFORMERS_NAMES = (
    r"(encoder|decoder)\.layers\.\d+\.((block\.\d+\.|shortcut\.)?conv|lstm)\."
    r"|quantizer\.layers\.\d+\.codebook\."
)


def transformers_rules(config: EncodecConfig) -> list[Rule | Drop]:
    """Map transformers' names, which are the canonical ones.

    Weight norm is folded; its names are those of torch before 2.0 or after.
    """
    found: list[Rule | Drop] = []
    for side in ("encoder", "decoder"):
        for part in ("conv", "block.1.conv", "block.3.conv", "shortcut.conv"):
            found += convolution(f"{side}.layers.{{}}.{part}", f"{side}.layers.{{}}.{part}")
        lstm = f"{side}.layers.{{}}.lstm"
        found += same_names(
            f"{lstm}.{part}_{kind}_l{{}}" for part in ("weight", "bias") for kind in ("ih", "hh")
        )
    books = "quantizer.layers.{}.codebook"
    found += same_names([f"{books}.embed"])
    return [*found, *(Drop(f"{books}.{name}", why, optional=True) for name, why in _TRAINING.items())]


def read(found: Found) -> EncodecConfig:
    """Read transformers' config.json, or derive the configuration from the tensors."""
    config = found.json("config.json")
    if config.get("model_type") == "encodec":
        return read_transformers(config)
    return from_shapes(found.checkpoint.shapes)


LAYOUTS = {
    "encodec_facebook": Layout("encodec", FACEBOOK_NAMES, facebook_rules, read),
    "encodec_transformers": Layout("encodec", TRANSFORMERS_NAMES, transformers_rules, read),
}
