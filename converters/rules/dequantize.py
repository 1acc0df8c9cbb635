"""MLX's quantised weights back to float32, in NumPy: affine, mxfp4, mxfp8 and nvfp4.

A row's codes lie in uint32 words, lowest bits first; `group_size` of them share a scale and, affine, a bias.
Formats: OCP Microscaling (MX) v1.0 for E2M1, E4M3 and E8M0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.rules.transforms import Shape, Transform
from tts_core.errors import CheckpointError, UsageError

GROUP_SIZES = {"affine": (64, 32, 128), "mxfp4": (32,), "mxfp8": (32,), "nvfp4": (16,)}  # the default first
BITS = {"affine": (4, 2, 3, 5, 6, 8), "mxfp4": (4,), "mxfp8": (8,), "nvfp4": (4,)}


@dataclass(frozen=True)
class Quantization:
    """How a layer's weight is stored: mode, weights that share a scale, bits per weight.

    original: the numbers are those that the model's own program makes (converters/rules/original_quant.py);
    they are stored in the same form.
    """

    mode: str
    group_size: int
    bits: int
    original: bool = False

    @classmethod
    def of(cls, mode: str = "affine", group_size: int | None = None, bits: int | None = None) -> Quantization:
        """Checked; None takes the mode's default. Raises UsageError."""
        if mode not in BITS:
            raise UsageError(f"--q-mode: {mode!r} is unknown; choose from {', '.join(BITS)}")
        for flag, value, known in (("size", group_size, GROUP_SIZES[mode]), ("bits", bits, BITS[mode])):
            if value is not None and value not in known:
                flag = "--q-group-size" if flag == "size" else "--q-bits"
                raise UsageError(f"{flag}: {mode} takes {', '.join(map(str, sorted(known)))}, not {value}")
        return cls(mode, group_size or GROUP_SIZES[mode][0], bits or BITS[mode][0])

    @classmethod
    def read(cls, given: Mapping[str, Any], layer: str) -> Quantization:
        """A layer's entry in config.json's "quantization", or the entry for all."""
        entry = given.get(layer, given)
        try:
            return cls.of(entry.get("mode", "affine"), entry["group_size"], entry["bits"])
        except (AttributeError, KeyError, UsageError) as fault:
            raise CheckpointError(
                f"config.json: quantization of {layer} is not understood: {fault}"
            ) from None

    @property
    def has_biases(self) -> bool:
        """Whether a group has an offset beside its scale."""
        return self.mode == "affine"

    def to_dict(self) -> dict[str, Any]:
        """As config.json has it."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": self.mode}


def dequantize(
    how: Quantization, weight: np.ndarray, scales: np.ndarray, biases: np.ndarray | None = None
) -> np.ndarray:
    """float32 (rows, columns) from uint32 words (rows, columns · bits / 32).

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
    with np.errstate(over="ignore", invalid="ignore"):  # whoever reads weights checks that they are finite
        groups *= scales[..., None]
    if biases is not None:
        groups += biases[..., None]
    return values


def dequantized(how: Quantization) -> Transform:
    """`dequantize` as a transform of (weight, scales) or (weight, scales, biases)."""

    def shape(weight: Shape, scales: Shape, biases: Shape | None = None) -> Shape:
        rows, columns = weight[0], weight[-1] * 32 // how.bits
        if len(weight) != 2 or scales != (rows, columns // how.group_size) or biases not in (None, scales):
            raise ValueError(f"quantised shapes {weight}, {scales}, {biases} do not belong together")
        return rows, columns

    def apply(weight: np.ndarray, scales: np.ndarray, biases: np.ndarray | None = None) -> np.ndarray:
        return dequantize(how, weight, scales, biases)

    return Transform(f"dequantize {how.mode} {how.bits}", apply, shape)


def _codes(weight: np.ndarray, bits: int) -> np.ndarray:
    """uint8 codes of rows of words that are one stream of bits."""
    octets = np.ascontiguousarray(weight.astype("<u4", copy=False)).view(np.uint8)
    if bits == 8:
        return octets
    if bits == 4:
        return np.stack([octets & 15, octets >> 4], axis=-1).reshape(len(octets), -1)
    stream = np.unpackbits(octets, axis=-1, bitorder="little")
    return np.packbits(stream.reshape(len(octets), -1, bits), axis=-1, bitorder="little")[..., 0]


def _table(exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    """Every value of a small float (sign, exponent, mantissa; subnormal, no infinities), by code."""
    codes = np.arange(2 ** (1 + exponent_bits + mantissa_bits))
    mantissa = codes % 2**mantissa_bits / 2**mantissa_bits
    exponent = codes >> mantissa_bits & (2**exponent_bits - 1)
    bias = 2 ** (exponent_bits - 1) - 1
    size = np.where(exponent, (1 + mantissa) * 2.0 ** (exponent - bias), mantissa * 2.0 ** (1 - bias))
    return np.where(codes >> (exponent_bits + mantissa_bits), -size, size).astype(np.float32)


E2M1 = _table(2, 1)
E4M3 = _table(4, 3)
E4M3[[0x7F, 0xFF]] = np.nan
# code 255 is NaN by the standard and infinite to MLX, which we follow
E8M0 = np.append(np.ldexp(1.0, np.arange(255) - 127), np.inf).astype(np.float32)
