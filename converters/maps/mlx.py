"""Map of converted folders: canonical names, MLX's axis order, some layers quantized."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from converters.maps.layouts import Hints
from converters.rules.assignment import Rule
from converters.rules.dequantize import Quantization, dequantized
from converters.rules.transforms import SAME, Shape, permute
from tts_core import models
from tts_core.errors import CheckpointError
from tts_core.shapes import mlx_axes


def rules(
    targets: Mapping[str, Shape],
    stored: Collection[str],
    quantization: Mapping[str, Any] | None,
) -> list[Rule]:
    """Map stored names to canonical names in PyTorch's axis order: the exact inverse of the writer.

    stored: the names in the files; a layer with scales is quantized.
    Raises CheckpointError for an unknown quantization.
    """
    if quantization:
        Quantization.read(quantization, "all layers")
    elif scales := [name for name in stored if name.endswith(".scales")]:
        raise CheckpointError(f"config.json: no quantization, but {scales[0]} is there; fetch it again")
    found = []
    for name, shape in targets.items():
        layer = name.removesuffix(".weight")
        if quantization and f"{layer}.scales" in stored:
            how = Quantization.read(quantization, layer)
            kinds = ("weight", "scales", "biases") if how.has_biases else ("weight", "scales")
            found.append(Rule(tuple(f"{layer}.{kind}" for kind in kinds), name, dequantized(how)))
            continue
        axes = mlx_axes(shape)
        undo = permute(tuple(sorted(range(len(axes)), key=axes.__getitem__))) if axes else SAME
        found.append(Rule(name, name, undo))
    return found


def with_hints(kind: str, config: Any, hints: Hints) -> Any:
    """Change a converted folder's configuration to the facts that the user gives."""
    if kind in models.NAMES:
        known = models.MODELS[kind].hints
        for name, value in hints.given().items():
            override = known.get(name)
            if override is not None:
                config = override(config, value)
    return config
