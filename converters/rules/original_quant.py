"""MetaVoice's own quantization of its first stage: int8 by rows, int4 by groups.

Source: metavoiceio/metavoice-src, July 2024 (Apache-2.0), after pytorch-labs/gpt-fast (BSD-3).
Differs from upstream: codes are in rows, not in the tiles of one kernel. `mlx_groups` gives the same int4
numbers in MLX's affine form, `mlx_rows` the int8 ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from converters.files.dtypes import narrow, widen
from converters.rules.dequantize import GROUP_SIZES, Quantization
from tts_core.errors import UsageError

MODES = {"int8": 8, "int4": 4}  # upstream's names → bits
GROUP_SIZE = 128
_MIDDLE, _MOST = 8, 15  # of the codes 0 to 15
_LEAST_RANGE = 1e-6


class Int8Rows(NamedTuple):
    """Codes (out, in) int8 and scales (out,) float32."""

    codes: np.ndarray
    scales: np.ndarray


class Int4Groups(NamedTuple):
    """Codes (out, in) uint8, 0 to 15, and scales and zeros (out, in / group) in float32.

    Scales and zeros are bfloat16 numbers; the value of a code c is (c - 8) · scale + zero.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray

    def dequantize(self) -> np.ndarray:
        """Return the values (out, in), bfloat16 numbers in float32."""
        steps = _grouped(self.codes, self.scales.shape[1]).astype(np.float32) - _MIDDLE
        values = _rounded(_rounded(steps * self.scales[..., None]) + self.zeros[..., None])
        return values.reshape(self.codes.shape)


class AffineGroups(NamedTuple):
    """MLX's affine form. words: (out, in · bits / 32) uint32, lowest bits first.

    scales, biases: (out, in / group) bfloat16 numbers; the value of a code c is c · scale + bias.
    """

    words: np.ndarray
    scales: np.ndarray
    biases: np.ndarray


def quantization_of(mode: str, group_size: int | None = None, bits: int | None = None) -> Quantization:
    """Build the quantization of `--q-mode`, `--q-group-size` and `--q-bits`; int8 and int4 are upstream's.

    group_size: 128 in upstream's int4; int8 has one scale per row, which MLX stores for each group.
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
    """Quantize float32 (out, in) symmetrically, with a scale for each row."""
    largest = np.abs(weight).max(axis=1)
    scales = np.maximum(largest / np.float32(127.5), np.finfo(np.float32).eps)
    codes = np.clip(np.round(weight / scales[:, None]), -128, 127).astype(np.int8)
    return Int8Rows(codes, scales)


def mlx_rows(weight: np.ndarray, group_size: int = GROUP_SIZE) -> AffineGroups:
    """Quantize as `int8_rows`, to MLX's affine 8-bit form.

    Codes are 128 larger and the bias is -128 · scale, so nothing is rounded. Scales are bfloat16, as in
    upstream.
    """
    own, groups = int8_rows(weight), weight.shape[1] // group_size
    scales = np.repeat(_rounded(own.scales)[:, None], groups, axis=1)
    return AffineGroups(_words(own.codes.astype(np.int16) + 128, 8), scales, -128 * scales)


def int4_groups(weight: np.ndarray, group_size: int = GROUP_SIZE) -> Int4Groups:
    """Quantize float32 (out, in) asymmetrically, from the minimum to the maximum of each group.

    Every operation rounds to bfloat16, as in upstream; float32 would give other codes.
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
    """Quantize as `int4_groups`, to MLX's affine 4-bit form: the same codes and scales, biases at code 0.

    MLX's dequantized values differ from `Int4Groups.dequantize` only by the rounding of the last bits.
    """
    own = int4_groups(weight, group_size)
    return AffineGroups(_words(own.codes, 4), own.scales, _bottom(own.scales, own.zeros))


def stored(values: np.ndarray, code: str, how: Quantization) -> AffineGroups:
    """Quantize a float32 weight for a converted folder; scales and biases have the number format `code`.

    As in upstream, the weight is first rounded to the dtype that the network runs in.
    """
    quantized = (mlx_rows if how.bits == 8 else mlx_groups)(widen(narrow(values, code), code), how.group_size)
    return AffineGroups(quantized.words, narrow(quantized.scales, code), narrow(quantized.biases, code))


def _words(codes: np.ndarray, bits: int) -> np.ndarray:
    """Pack rows of codes into uint32 words, lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    parts = codes.reshape(len(codes), -1, len(shifts)).astype(np.uint32) << shifts
    return np.bitwise_or.reduce(parts, axis=-1)


def _bottom(scales: np.ndarray, zeros: np.ndarray) -> np.ndarray:
    """Compute the value of code 0, in bfloat16."""
    return _rounded(zeros - _rounded(scales * np.float32(_MIDDLE)))


def _grouped(matrix: np.ndarray, groups: int) -> np.ndarray:
    return matrix.reshape(len(matrix), groups, -1)


def _rounded(values: np.ndarray | np.float32) -> np.ndarray:
    """Round float32 to the nearest bfloat16 number, as float32."""
    return widen(narrow(np.asarray(values, np.float32), "BF16"), "BF16")
