"""A folder that we converted: canonical names, the codec's axes in MLX's order, linears perhaps quantised."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from converters.dequantize import Quantization, dequantized
from converters.rules import Rule
from converters.transforms import SAME, Shape, permute
from tts_core.dac import mlx_axes


def rules(
    targets: Mapping[str, Shape], stored: Collection[str], quantization: Mapping[str, Any] | None
) -> list[Rule]:
    """Stored name → canonical name in PyTorch's axis order; undoes exactly what the writer did.

    stored: the names in the files: a layer with scales is a quantised one.
    """
    found = []
    for name, shape in targets.items():
        layer = name.removesuffix(".weight")
        if quantization and f"{layer}.scales" in stored:
            how = Quantization.read(quantization, layer)
            kinds = ("weight", "scales", "biases") if how.has_biases else ("weight", "scales")
            found.append(Rule(tuple(f"{layer}.{kind}" for kind in kinds), name, dequantized(how)))
            continue
        axes = mlx_axes(name, len(shape))
        undo = permute(tuple(sorted(range(len(axes)), key=axes.__getitem__))) if axes else SAME
        found.append(Rule(name, name, undo))
    return found
