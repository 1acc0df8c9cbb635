"""Maps of DAC: descript's layout, with or without weight norm, and transformers' layout."""

from __future__ import annotations

from collections.abc import Mapping

from converters.maps.layouts import Found, Layout
from converters.rules.plan import Drop, Rule
from converters.rules.transforms import FOLD_WEIGHT_NORM
from tts_core.codecs.dac import DILATIONS, DacConfig, read_descript, read_transformers

DESCRIPT_NAMES = (
    r"encoder\.block\.\d+\.(block|weight|bias|alpha|param)|decoder\.model\.|quantizer\.quantizers\."
)


def descript_rules(config: DacConfig) -> list[Rule | Drop]:
    """Map descript's names, indices of nested Sequentials, to canonical names.

    Block b is b + 1 of theirs; the last Snake and convolution follow.
    """
    downs, ups = len(config.downsampling_ratios), len(config.upsampling_ratios)
    found: list[Rule | Drop] = _conv("encoder.block.0", "encoder.conv1")
    for block in range(downs):
        theirs, ours = f"encoder.block.{block + 1}.block", f"encoder.block.{block}"
        for unit in range(len(DILATIONS)):
            found += _residual_unit(f"{theirs}.{unit}.block", f"{ours}.res_unit{unit + 1}")
        found += [_snake(f"{theirs}.3", f"{ours}.snake1"), *_conv(f"{theirs}.4", f"{ours}.conv1")]
    found.append(_snake(f"encoder.block.{downs + 1}", "encoder.snake1"))
    found += _conv(f"encoder.block.{downs + 2}", "encoder.conv2")

    for layer in ("in_proj", "out_proj"):
        found += _conv(f"quantizer.quantizers.{{}}.{layer}", f"quantizer.quantizers.{{}}.{layer}")
    found.append(Rule("quantizer.quantizers.{}.codebook.weight", "quantizer.quantizers.{}.codebook.weight"))

    found += _conv("decoder.model.0", "decoder.conv1")
    for block in range(ups):
        theirs, ours = f"decoder.model.{block + 1}.block", f"decoder.block.{block}"
        found += [_snake(f"{theirs}.0", f"{ours}.snake1"), *_conv(f"{theirs}.1", f"{ours}.conv_t1")]
        for unit in range(len(DILATIONS)):
            found += _residual_unit(f"{theirs}.{unit + 2}.block", f"{ours}.res_unit{unit + 1}")
    found.append(_snake(f"decoder.model.{ups + 1}", "decoder.snake1"))
    return [*found, *_conv(f"decoder.model.{ups + 2}", "decoder.conv2")]


def _residual_unit(theirs: str, ours: str) -> list[Rule | Drop]:
    return [
        _snake(f"{theirs}.0", f"{ours}.snake1"),
        *_conv(f"{theirs}.1", f"{ours}.conv1"),
        _snake(f"{theirs}.2", f"{ours}.snake2"),
        *_conv(f"{theirs}.3", f"{ours}.conv2"),
    ]


def _snake(theirs: str, ours: str) -> Rule:
    return Rule(f"{theirs}.alpha", f"{ours}.alpha")


def _conv(theirs: str, ours: str) -> list[Rule | Drop]:
    """Map a convolution in one of three forms: old weight norm, torch's parametrization, or folded."""
    old = (f"{theirs}.weight_g", f"{theirs}.weight_v")
    new = tuple(f"{theirs}.parametrizations.weight.original{i}" for i in (0, 1))
    return [
        Rule(old, f"{ours}.weight", FOLD_WEIGHT_NORM, optional=True),
        Rule(new, f"{ours}.weight", FOLD_WEIGHT_NORM, optional=True),
        Rule(f"{theirs}.weight", f"{ours}.weight", optional=True),
        Rule(f"{theirs}.bias", f"{ours}.bias"),
    ]


TRANSFORMERS_NAMES = (
    r"(encoder|decoder)\.(block\.\d+\.(res_unit|snake1|conv)|conv[12]|snake1)|quantizer\.quantizers\."
)

_RESIDUAL_UNITS = [
    f"res_unit{unit + 1}.{part}"
    for unit in range(len(DILATIONS))
    for part in ("snake1.alpha", "conv1.weight", "conv1.bias", "snake2.alpha", "conv2.weight", "conv2.bias")
]
_ENDS = ["conv1.weight", "conv1.bias", "snake1.alpha", "conv2.weight", "conv2.bias"]


def transformers_rules(config: DacConfig) -> list[Rule | Drop]:
    """Map transformers' names, which are the canonical ones; weight norm is folded."""
    names = [
        *[f"{part}.{end}" for part in ("encoder", "decoder") for end in _ENDS],
        *[
            f"encoder.block.{{}}.{name}"
            for name in (*_RESIDUAL_UNITS, "snake1.alpha", "conv1.weight", "conv1.bias")
        ],
        *[
            f"decoder.block.{{}}.{name}"
            for name in ("snake1.alpha", "conv_t1.weight", "conv_t1.bias", *_RESIDUAL_UNITS)
        ],
        *[f"quantizer.quantizers.{{}}.{p}_proj.{kind}" for p in ("in", "out") for kind in ("weight", "bias")],
        "quantizer.quantizers.{}.codebook.weight",
    ]
    return [Rule(name, name) for name in names]


def config_missing(found: Found) -> str | None:
    """Return config.json if both it and the checkpoint's own metadata are missing."""
    held = "kwargs" in found.checkpoint.metadata or found.json("config.json")
    return None if held else "config.json"


def read(found: Found) -> DacConfig:
    """Read the checkpoint's own metadata, or config.json."""
    if isinstance(found.checkpoint.metadata.get("kwargs"), Mapping):
        return read_descript(found.checkpoint.metadata["kwargs"])
    config = found.json("config.json")
    return read_descript(config) if "encoder_rates" in config else read_transformers(config)


LAYOUTS = {
    "dac_descript": Layout(
        "dac", DESCRIPT_NAMES, descript_rules, read, config_missing, entries=("metadata",)
    ),
    "dac_transformers": Layout("dac", TRANSFORMERS_NAMES, transformers_rules, read, config_missing),
}
