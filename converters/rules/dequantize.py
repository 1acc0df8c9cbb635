"""Dequantization of MLX's formats to float32 in NumPy: affine, mxfp4, mxfp8 and nvfp4.

A row's codes are packed into uint32 words, lowest bits first; `group_size` codes share a scale and, if
affine, a bias.
Formats: OCP Microscaling (MX) v1.0 for E2M1, E4M3 and E8M0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.rules.transforms import Shape, Transform
from tts_core.errors import CheckpointError, UsageError

GROUP_SIZES = {
    "affine": (64, 32, 128),
    "mxfp4": (32,),
    "mxfp8": (32,),
    "nvfp4": (16,),
}  # default first
BITS = {"affine": (8, 2, 3, 4, 5, 6), "mxfp4": (4,), "mxfp8": (8,), "nvfp4": (4,)}


@dataclass(frozen=True)
class Quantization:
    """Form of a layer's stored weight: mode, weights per scale, bits per weight.

    original: the numbers are those of the model's own program (converters/rules/original_quant.py), in the
    same stored form.
    """

    mode: str
    group_size: int
    bits: int
    original: bool = False

    @classmethod
    def of(cls, mode: str = "affine", group_size: int | None = None, bits: int | None = None) -> Quantization:
        """Check and complete the values; None takes the mode's default. Raises UsageError."""
        if mode not in BITS:
            raise UsageError(f"--q-mode: {mode!r} is unknown; choose from {', '.join(BITS)}")
        for flag, value, known in (("size", group_size, GROUP_SIZES[mode]), ("bits", bits, BITS[mode])):
            if value is not None and value not in known:
                flag = "--q-group-size" if flag == "size" else "--q-bits"
                raise UsageError(f"{flag}: {mode} takes {', '.join(map(str, sorted(known)))}, not {value}")
        return cls(mode, group_size or GROUP_SIZES[mode][0], bits or BITS[mode][0])

    @classmethod
    def read(cls, given: Mapping[str, Any], layer: str) -> Quantization:
        """Read a layer's entry in config.json's "quantization", or the general entry."""
        entry = given.get(layer, given)
        try:
            return cls.of(entry.get("mode", "affine"), entry["group_size"], entry["bits"])
        except (AttributeError, KeyError, UsageError) as fault:
            reason = str(fault).partition(": ")[2] or fault  # without the flag's name
            raise CheckpointError(
                f"config.json: quantization of {layer} is not understood: {reason}"
            ) from None

    @property
    def has_biases(self) -> bool:
        """True if a group has an offset beside its scale."""
        return self.mode == "affine"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of config.json."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}


def dequantize(
    how: Quantization, weight: np.ndarray, scales: np.ndarray, biases: np.ndarray | None = None
) -> np.ndarray:
    """Dequantize uint32 words (rows, columns · bits / 32) to float32 (rows, columns).

    scales, biases: (rows, columns / group_size); float32 where affine, else uint8: E8M0 (mxfp4, mxfp8) or
    E4M3 (nvfp4).
    """
    codes = _codes(weight, how.bits)
    if how.has_biases:
        values = codes.astype(np.float32)
    else:
        values = (E4M3 if how.bits == 8 else E2M1)[codes]
        scales = (E4M3 if how.mode == "nvfp4" else E8M0)[scales]
    groups = values.reshape(*scales.shape, how.group_size)
    with np.errstate(over="ignore", invalid="ignore"):  # the readers of weights check that they are finite
        groups *= scales[..., None]
    if biases is not None:
        groups += biases[..., None]
    return values


def dequantized(how: Quantization) -> Transform:
    """Build the transform of (weight, scales) or (weight, scales, biases) that calls `dequantize`."""

    def shape(weight: Shape, scales: Shape, biases: Shape | None = None) -> Shape:
        rows, columns = weight[0], weight[-1] * 32 // how.bits
        if len(weight) != 2 or scales != (rows, columns // how.group_size) or biases not in (None, scales):
            raise ValueError(f"quantized shapes {weight}, {scales}, {biases} do not match")
        return rows, columns

    def apply(weight: np.ndarray, scales: np.ndarray, biases: np.ndarray | None = None) -> np.ndarray:
        return dequantize(how, weight, scales, biases)

    return Transform(f"dequantize {how.mode} {how.bits}", apply, shape)


def _codes(weight: np.ndarray, bits: int) -> np.ndarray:
    """Unpack rows of words, each one stream of bits, to uint8 codes."""
    octets = np.ascontiguousarray(weight.astype("<u4", copy=False)).view(np.uint8)
    if bits == 8:
        return octets
    if bits == 4:
        return np.stack([octets & 15, octets >> 4], axis=-1).reshape(len(octets), -1)
    stream = np.unpackbits(octets, axis=-1, bitorder="little")
    return np.packbits(stream.reshape(len(octets), -1, bits), axis=-1, bitorder="little")[..., 0]


def _table(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """List the values of a small float by code (sign, exponent, mantissa; subnormals, no infinities)."""
    codes = np.arange(2 ** (1 + exponent_bits + mantissa_bits))
    mantissa = codes % 2**mantissa_bits / 2**mantissa_bits
    exponent = codes >> mantissa_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    size = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias))
    return np.where(codes >> (exponent_bits + mantissa_bits), -size, size).astype(np.float32)


E2M1 = _table(2, 1)
E4M3 = _table(4, 3)
E4M3[[0x7F, 0xFF]] = np.nan
# code 255 is NaN in the standard; like MLX, we read infinity
E8M0 = np.append(np.ldexp(1.0, np.arange(255) - 127), np.inf).astype(np.float32)
