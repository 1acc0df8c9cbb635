"""DAC as transformers saves it: the canonical names themselves, weight norm folded."""

from __future__ import annotations

from converters.rules.plan import Drop, Rule
from tts_core.codecs.dac import DILATIONS, DacConfig

NAMES = r"(encoder|decoder)\.(block\.\d+\.(res_unit|snake1|conv)|conv[12]|snake1)|quantizer\.quantizers\."

_RESIDUAL_UNITS = [
    f"res_unit{unit + 1}.{part}"
    for unit in range(len(DILATIONS))
    for part in ("snake1.alpha", "conv1.weight", "conv1.bias", "snake2.alpha", "conv2.weight", "conv2.bias")
]
_ENDS = ["conv1.weight", "conv1.bias", "snake1.alpha", "conv2.weight", "conv2.bias"]


def rules(config: DacConfig) -> list[Rule | Drop]:
    """Every name is kept."""
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
