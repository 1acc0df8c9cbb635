"""Maps of DAC: descript's layout, with or without weight norm, mlx-audio's, and transformers'."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from converters.maps.layouts import Found, Layout, canonical
from converters.rules.assignment import Drop, Rule, convolution
from converters.rules.transforms import FOLD_WEIGHT_NORM, SAME, Transform, permute
from tts_core.codecs.dac import DILATIONS, DacConfig, read_descript, read_transformers
from tts_core.config import without_envelope

DESCRIPT_NAMES = (
    r"encoder\.block\.\d+\.(block|weight|bias|alpha|param)|decoder\.model\.|quantizer\.quantizers\."
)


def descript_rules(config: DacConfig) -> list[Rule | Drop]:
    """Map descript's names, indices of nested Sequentials, to canonical names.

    Block b is b + 1 of theirs; the last Snake and convolution follow.
    """
    downs, ups = len(config.downsampling_ratios), len(config.upsampling_ratios)
    found: list[Rule | Drop] = convolution("encoder.block.0", "encoder.conv1")
    for block in range(downs):
        theirs, ours = f"encoder.block.{block + 1}.block", f"encoder.block.{block}"
        for unit in range(len(DILATIONS)):
            found += _residual_unit(f"{theirs}.{unit}.block", f"{ours}.res_unit{unit + 1}")
        found += [_snake(f"{theirs}.3", f"{ours}.snake1"), *convolution(f"{theirs}.4", f"{ours}.conv1")]
    found.append(_snake(f"encoder.block.{downs + 1}", "encoder.snake1"))
    found += convolution(f"encoder.block.{downs + 2}", "encoder.conv2")

    for layer in ("in_proj", "out_proj"):
        found += convolution(f"quantizer.quantizers.{{}}.{layer}", f"quantizer.quantizers.{{}}.{layer}")
    found.append(Rule("quantizer.quantizers.{}.codebook.weight", "quantizer.quantizers.{}.codebook.weight"))

    found += convolution("decoder.model.0", "decoder.conv1")
    for block in range(ups):
        theirs, ours = f"decoder.model.{block + 1}.block", f"decoder.block.{block}"
        found += [_snake(f"{theirs}.0", f"{ours}.snake1"), *convolution(f"{theirs}.1", f"{ours}.conv_t1")]
        for unit in range(len(DILATIONS)):
            found += _residual_unit(f"{theirs}.{unit + 2}.block", f"{ours}.res_unit{unit + 1}")
    found.append(_snake(f"decoder.model.{ups + 1}", "decoder.snake1"))
    return [*found, *convolution(f"decoder.model.{ups + 2}", "decoder.conv2")]


MLX_NAMES = r"encoder\.block\.layers\.|decoder\.model\.layers\.|quantizer\.quantizers\."


def mlx_rules(config: DacConfig) -> list[Rule | Drop]:
    """Map mlx-audio's names, descript's with `layers` in each Sequential; channels are last."""
    found = list[Rule | Drop]()
    for rule in descript_rules(config):
        assert isinstance(rule, Rule)
        if rule.src == rule.dst and "codebook" in rule.src:
            found.append(rule)
        elif not isinstance(rule.src, tuple):
            is_alpha, is_bias = rule.src.endswith(".alpha"), rule.src.endswith(".bias")
            how = permute((0, 2, 1)) if is_alpha else SAME
            found += [replace(rule, src=_in_layers(rule.src), how=how)] if is_alpha or is_bias else []
        elif rule.src[0].endswith(".weight_g"):
            transpose = permute((2, 0, 1) if ".conv_t1." in str(rule.dst) else (0, 2, 1))
            found.append(Rule(tuple(map(_in_layers, rule.src)), rule.dst, _folded(transpose)))
    return found


def _in_layers(name: str) -> str:
    return re.sub(r"\.(block|model)\.(?=\d)", r".\1.layers.", name)


def _folded(transpose: Transform) -> Transform:
    """Fold weight norm of a gain and a direction, each of them turned first."""
    return Transform(
        f"{transpose.name}, {FOLD_WEIGHT_NORM.name}",
        lambda *pair: FOLD_WEIGHT_NORM.apply(*map(transpose.apply, pair)),
        lambda *pair: FOLD_WEIGHT_NORM.shape(*map(transpose.shape, pair)),
    )


def _residual_unit(theirs: str, ours: str) -> list[Rule | Drop]:
    return [
        _snake(f"{theirs}.0", f"{ours}.snake1"),
        *convolution(f"{theirs}.1", f"{ours}.conv1"),
        _snake(f"{theirs}.2", f"{ours}.snake2"),
        *convolution(f"{theirs}.3", f"{ours}.conv2"),
    ]


def _snake(theirs: str, ours: str) -> Rule:
    return Rule(f"{theirs}.alpha", f"{ours}.alpha")


TRANSFORMERS_NAMES = (
    r"(encoder|decoder)\.(block\.\d+\.(res_unit|snake1|conv)|conv[12]|snake1)|quantizer\.quantizers\."
)


def config_missing(found: Found) -> str | None:
    """Return config.json if both it and the checkpoint's own metadata are missing."""
    held = "kwargs" in found.checkpoint.metadata or found.json("config.json")
    return None if held else "config.json"


def read(found: Found) -> DacConfig:
    """Read the checkpoint's own metadata, or config.json."""
    if isinstance(found.checkpoint.metadata.get("kwargs"), Mapping):
        return read_descript(found.checkpoint.metadata["kwargs"])
    config = without_envelope(found.json("config.json"))
    return read_descript(config) if "encoder_rates" in config else read_transformers(config)


LAYOUTS = {
    "dac_descript": Layout(
        "dac", DESCRIPT_NAMES, descript_rules, read, config_missing, entries=("metadata",)
    ),
    "dac_mlx": Layout("dac", MLX_NAMES, mlx_rules, read, config_missing),
    "dac_transformers": Layout("dac", TRANSFORMERS_NAMES, canonical("dac"), read, config_missing),
}
