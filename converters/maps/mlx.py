"""A folder that we converted: canonical names, convolutions in MLX's axis order, some layers quantised."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from converters.maps.layouts import Hints
from converters.rules.dequantize import Quantization, dequantized
from converters.rules.plan import Rule
from converters.rules.transforms import SAME, Shape, permute
from tts_core import models


def rules(
    targets: Mapping[str, Shape],
    stored: Collection[str],
    quantization: Mapping[str, Any] | None,
    mlx_axes: Callable[[str, int], tuple[int, ...] | None],
) -> list[Rule]:
    """Stored name → canonical name in PyTorch's axis order; undoes exactly what the writer did.

    stored: the names in the files: a layer with scales is a quantised one. mlx_axes: as of its kind.
    Raises CheckpointError for a quantization that is none of ours.
    """
    if quantization:
        Quantization.read(quantization, "all layers")
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


def with_hints(kind: str, config: Any, hints: Hints) -> Any:
    """A converted folder's configuration, changed to what the user states of the model."""
    if kind in models.NAMES:
        known = models.model(kind).hints
        for name, value in hints.given().items():
            override = known.get(name)
            if override is not None:
                config = override(config, value)
    return config
