"""Errors for results that cannot be: NaN or infinite logits, sound that is exactly zero."""

from __future__ import annotations

import numpy as np

from tts_core.errors import GenerationError

REMEDY = {
    "float16": "use bfloat16 or float32",
    "bfloat16": "use float32, or check the model with: mlx-port verify",
}


def not_finite(layer: str | None, dtype: str, *, text: int, row: int) -> GenerationError:
    """Build the error for NaN or infinite logits in row `row`, from 0, of the batch's text `text`, from 1.

    layer: the first one whose output is not finite; None if a second run finds no such layer.
    """
    where = f"{layer} gives NaN or infinity" if layer else "logits are NaN or infinite"
    remedy = REMEDY.get(dtype, "the weights are damaged; check the model with: mlx-port verify")
    return GenerationError(f"generation: {where} in {dtype} (text {text}, row {row}); {remedy}")


def check_sound(samples: np.ndarray) -> None:
    """Raise GenerationError if a codec's samples, (L,), are all exactly zero.

    No codec computes that, but on Metal an evaluation that lacked memory may, without an error
    (ml-explore/mlx#3979).
    """
    if samples.size and not samples.any():
        raise GenerationError(
            f"generation: the codec gave {samples.size} samples that are exactly zero, so the device lacked "
            "memory or is at fault; close other programs and try again, or check it with: mlx-port doctor"
        )
