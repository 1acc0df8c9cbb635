"""Errors for results that cannot be: NaN or infinite logits, sound that is exactly zero."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tts_core.errors import GenerationError

REMEDY = {
    "float16": "use bfloat16 or float32",
    "bfloat16": "use float32, or check the model with: mlx-port verify",
}


class NotFiniteError(GenerationError):
    """NaN or infinite logits in row `row`, from 0, of a batch's text `text`, from 1.

    layer: the first one whose output is not finite; None if a second run finds no such layer.
    """

    def __init__(self, layer: str | None, dtype: str, *, text: int, row: int):
        where = f"{layer} gives NaN or infinity" if layer else "logits are NaN or infinite"
        remedy = REMEDY.get(dtype, "the weights are damaged; check the model with: mlx-port verify")
        super().__init__(f"generation: {where} in {dtype} (text {text}, row {row}); {remedy}")
        self.layer, self.dtype, self.text, self.row = layer, dtype, text, row

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(NotFiniteError, text=self.text, row=self.row), (self.layer, self.dtype)

    def of(self, text: int) -> NotFiniteError:
        """Return the error for another text."""
        return NotFiniteError(self.layer, self.dtype, text=text, row=self.row)


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


def checked(samples: np.ndarray) -> np.ndarray | Exception:
    """Return a codec's samples, (L,), or their error, where a window cannot be decoded again."""
    try:
        check_sound(samples)
    except GenerationError as error:
        return error
    return samples
