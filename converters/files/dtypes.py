"""Number formats of checkpoint files and their casts; bfloat16, which NumPy lacks, is cast by its bits."""

from __future__ import annotations

import numpy as np

from converters.files.blocks import blocks

FLOATS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
}  # our name → safetensors name
FLOAT_NAMES = {code: name for name, code in FLOATS.items()}

_STORED = {
    **{"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"},
    **{f"{kind}{8 * size}": f"<{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)},
    **{"BOOL": "|b1", "F8_E4M3": "|u1", "F8_E5M2": "|u1"},
}


def stored_type(code: str) -> np.dtype:
    """Return the NumPy dtype of stored tensors; bfloat16 is uint16, float8 is uint8."""
    return np.dtype(_STORED[code])


def widen(stored: np.ndarray, code: str) -> np.ndarray:
    """Cast stored floats to float32 (exact except for float64); return other types unchanged."""
    if code == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32, copy=False) if code in ("F64", "F32", "F16") else stored


def narrow(values: np.ndarray, code: str) -> np.ndarray:
    """Cast float32 to the stored type of F32, F16 or BF16: to nearest even, overflow to infinity."""
    if code != "BF16":
        with np.errstate(over="ignore"):
            return values.astype(stored_type(code), copy=False)
    stored = np.empty(values.shape, np.uint16)
    for part, target in zip(blocks(values), blocks(stored), strict=True):
        target[:] = _bfloat16(part)
    return stored


def _bfloat16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))
    rounded >>= 16
    rounded = rounded.astype(np.uint16)
    nans = np.isnan(values)
    if nans.any():  # rounding could turn the bits of a NaN into infinity
        rounded[nans] = (bits[nans] >> 16) | 0x0040
    return rounded
