"""The numbers that MetaVoice itself quantises its first stage to when it loads: int8 by rows, int4 by groups.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), which has them from pytorch-labs/gpt-fast (BSD-3).
Differs from upstream: codes stand in rows, not in the tiles of one kernel. `mlx_groups` gives the same int4
numbers as MLX's affine form holds them, `mlx_rows` the int8 ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from converters.files.dtypes import narrow, widen
from converters.rules.dequantize import GROUP_SIZES, Quantization
from tts_core.errors import UsageError

MODES = {"int8": 8, "int4": 4}  # upstream's names for them → bits
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


class AffineGroups(NamedTuple):
    """MLX's affine form. words: (out, in · bits / 32) uint32, the lowest bits first.

    scales, biases: (out, in / group) bfloat16 numbers; a code c stands for c · scale + bias.
    """

    words: np.ndarray
    scales: np.ndarray
    biases: np.ndarray


def quantization_of(mode: str, group_size: int | None = None, bits: int | None = None) -> Quantization:
    """What `--q-mode`, `--q-group-size` and `--q-bits` stand for, upstream's int8 and int4 among the modes.

    group_size: upstream's of int4 is 128; int8 has one scale a row, which MLX stores for each group.
    Raises UsageError.
    """
    if mode not in MODES:
        return Quantization.of(mode, group_size, bits)
    if bits not in (None, MODES[mode]):
        raise UsageError(f"--q-bits: {mode} takes {MODES[mode]}, not {bits}")
    if group_size not in (None, *GROUP_SIZES["affine"]):
        known = ", ".join(map(str, sorted(GROUP_SIZES["affine"])))
        raise UsageError(f"--q-group-size: {mode} takes {known}, not {group_size}")
    return Quantization("affine", group_size or GROUP_SIZE, MODES[mode], original=True)


def int8_rows(weight: np.ndarray) -> Int8Rows:
    """Symmetric, a scale for each row of float32 (out, in)."""
    largest = np.abs(weight).max(axis=1)
    scales = np.maximum(largest / np.float32(127.5), np.finfo(np.float32).eps)
    codes = np.clip(np.round(weight / scales[:, None]), -128, 127).astype(np.int8)
    return Int8Rows(codes, scales)


def mlx_rows(weight: np.ndarray, group_size: int = GROUP_SIZE) -> AffineGroups:
    """The numbers of `int8_rows`, as upstream's layer multiplies with them, in MLX's affine 8-bit form.

    A code is 128 more and the bias -128 · scale: nothing is rounded. Scales are bfloat16, as in upstream.
    """
    own, groups = int8_rows(weight), weight.shape[1] // group_size
    scales = np.repeat(_rounded(own.scales)[:, None], groups, axis=1)
    return AffineGroups(_words(own.codes.astype(np.int16) + 128, 8), scales, -128 * scales)


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
    return AffineGroups(_words(own.codes, 4), own.scales, _bottom(own.scales, own.zeros))


def stored(values: np.ndarray, code: str, how: Quantization) -> AffineGroups:
    """What a converted folder holds of a float32 weight: scales and biases in the number format `code`.

    Upstream quantises what is already in the dtype that it runs in, and so does this.
    """
    made = (mlx_rows if how.bits == 8 else mlx_groups)(widen(narrow(values, code), code), how.group_size)
    return AffineGroups(made.words, narrow(made.scales, code), narrow(made.biases, code))


def _words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of rows in uint32 words, the lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = codes.reshape(len(codes), -1, len(shifts)).astype(np.uint32) << shifts
    return np.bitwise_or.reduce(parts, axis=-1)


def _bottom(scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """What code 0 stands for, in bfloat16."""
    return _rounded(zeros - _rounded(scales * np.float32(_MIDDLE)))


def _grouped(matrix: np.ndarray, groups: int) -> np.ndarray:
    return matrix.reshape(len(matrix), groups, -1)


def _rounded(values: np.ndarray | np.float32) -> np.ndarray:
    """float32 to the nearest bfloat16 number, as float32."""
    return widen(narrow(np.asarray(values, np.float32), "BF16"), "BF16")
