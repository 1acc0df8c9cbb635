"""Number formats of checkpoint files and their casts; NumPy has no bfloat16, so its bits are handled."""

from __future__ import annotations

import numpy as np

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
    """The NumPy type of a tensor's bytes; bfloat16 is uint16, float8 is uint8."""
    return np.dtype(_STORED[code])


def widen(stored: np.ndarray, code: str) -> np.ndarray:
    """Floats as float32 (exact, but for float64); anything else as it is stored."""
    if code == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32, copy=False) if code in ("F64", "F32", "F16") else stored


def narrow(values: np.ndarray, code: str) -> np.ndarray:
    """float32 values as the stored type of F32, F16 or BF16: to nearest even, overflow to infinity."""
    if code != "BF16":
        with np.errstate(over="ignore"):
            return values.astype(stored_type(code), copy=False)
    bits = values.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1)))
    rounded >>= 16
    rounded = rounded.astype(np.uint16)
    nans = np.isnan(values)
    if nans.any():  # rounding could carry a NaN's bits into infinity
        rounded[nans] = (bits[nans] >> 16) | 0x0040
    return rounded
