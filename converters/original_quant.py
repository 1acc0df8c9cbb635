"""The numbers that MetaVoice itself quantises its first stage to when it loads: int8 by rows, int4 by groups.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), which has them from pytorch-labs/gpt-fast (BSD-3).
Differs from upstream: codes stand in rows, not in the tiles of one kernel. `mlx_groups` gives the same int4
numbers as MLX's affine form holds them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from converters.dtypes import narrow, widen
from tts_core.metavoice import is_quantisable

GROUP_SIZE = 128
_MIDDLE, _MOST = 8, 15  # of the codes 0 .. 15
_LEAST_RANGE = 1e-6


class Int8Rows(NamedTuple):
    """codes: (out, in) int8.  scales: (out,) float32."""

    codes: np.ndarray
    scales: np.ndarray


class Int4Groups(NamedTuple):
    """codes: (out, in) uint8, 0 to 15.  scales, zeros: (out, in / group) float32 that are bfloat16 numbers;
    a code c stands for (c - 8) · scale + zero.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    def dequantize(self) -> np.ndarray:
        """(out, in) float32 that are bfloat16 numbers."""
        steps = _grouped(self.codes, self.scales.shape[1]).astype(np.float32) - _MIDDLE
        values = _rounded(_rounded(steps * self.scales[..., None]) + self.zeros[..., None])
        return values.reshape(self.codes.shape)

    def scales_and_zeros(self) -> np.ndarray:
        """As upstream stores them: (in / group, out, 2)."""
        return np.stack([self.scales, self.zeros], axis=-1).swapaxes(0, 1)


class AffineGroups(NamedTuple):
    """MLX's affine 4-bit form. words: (out, in / 8) uint32, eight codes each, the lowest bits first.

    scales, biases: as Int4Groups; a code c stands for c · scale + bias.
    """

    words: np.ndarray
    scales: np.ndarray
    biases: np.ndarray


def takes_int4(name: str, shape: tuple[int, ...], group_size: int = GROUP_SIZE) -> bool:
    """Whether upstream's int4 takes a tensor of the first stage, by its canonical name and its sizes.

    It takes linear layers with rows by the eight and columns by the group: all but the head, whose 2,562 rows
    stay as they are, as embeddings and norms do. int8 takes every linear layer.
    """
    linear = name == "speaker_cond_pos.weight" or is_quantisable(name)
    return linear and shape[0] % 8 == 0 and shape[1] % group_size == 0


def int8_rows(weight: np.ndarray) -> Int8Rows:
    """Symmetric, a scale for each row of float32 (out, in)."""
    largest = np.abs(weight).max(axis=1)
    scales = np.maximum(largest / np.float32(127.5), np.finfo(np.float32).eps)
    codes = np.clip(np.round(weight / scales[:, None]), -128, 127).astype(np.int8)
    return Int8Rows(codes, scales)


def int8_product(x: np.ndarray, weight: Int8Rows) -> np.ndarray:
    """x · weightᵀ as upstream's layer gives it: scales are rounded to bfloat16. (n, in) → (n, out)."""
    return (x @ weight.codes.T.astype(np.float32)) * _rounded(weight.scales)


def int4_groups(weight: np.ndarray, group_size: int = GROUP_SIZE) -> Int4Groups:
    """Asymmetric, from the least to the largest number of each group of float32 (out, in).

    In bfloat16: upstream rounds after every operation, and the same in float32 gives other codes.
    """
    groups = _grouped(_rounded(weight), weight.shape[1] // group_size)
    least, most = groups.min(axis=-1), groups.max(axis=-1)
    span = np.maximum(_rounded(most - least), _rounded(np.float32(_LEAST_RANGE)))
    scales = _rounded(span / np.float32(_MOST))
    zeros = _rounded(least + _rounded(scales * np.float32(_MIDDLE)))
    above = _rounded(groups - _bottom(scales, zeros)[..., None])
    codes = np.clip(np.round(_rounded(above / scales[..., None])), 0, _MOST).astype(np.uint8)
    return Int4Groups(codes.reshape(weight.shape), scales, zeros)


def mlx_groups(weight: np.ndarray, group_size: int = GROUP_SIZE) -> AffineGroups:
    """The numbers of `int4_groups` in MLX's affine 4-bit form: the same codes and scales, biases at code 0.

    What MLX makes of them differs from `Int4Groups.dequantize` by the rounding of the last bits alone.
    """
    own = int4_groups(weight, group_size)
    shifts = np.arange(0, 32, 4, dtype=np.uint32)
    parts = own.codes.reshape(len(own.codes), -1, len(shifts)).astype(np.uint32) << shifts
    return AffineGroups(np.bitwise_or.reduce(parts, axis=-1), own.scales, _bottom(own.scales, own.zeros))


def _bottom(scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What code 0 stands for, in bfloat16."""
    return _rounded(zeros - _rounded(scales * np.float32(_MIDDLE)))


def _grouped(matrix: np.ndarray, groups: int) -> np.ndarray:
    return matrix.reshape(len(matrix), groups, -1)


def _rounded(values: np.ndarray | np.float32) -> np.ndarray:
    """float32 to the nearest bfloat16 number, as float32."""
    return widen(narrow(np.asarray(values, np.float32), "BF16"), "BF16")
