"""The arithmetic of MLX's float32 products: exact, unless the user asks for TF32.

By default MLX rounds float32 products, convolutions and attention to TF32 on NVIDIA GPUs, and on Apple's
from M5 on (macOS 26.2). It reads MLX_ENABLE_TF32 at the first such product, not at its import.
Source: ml-explore/mlx, mlx/utils.h and backend/metal/device.cpp (is_nax_available), version 0.32; threads
#3534, #3860, #4411.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from typing import Any, Literal

VARIABLE = "MLX_ENABLE_TF32"
FIRST_GENERATION = 17  # of Apple's GPUs: M5
FIRST_MACOS = (26, 2)
AFFECTED = "NVIDIA GPUs, and Apple's from M5 on with macOS 26.2; not M1 to M4, nor any CPU"

Arithmetic = Literal["float32", "tf32", "unknown"]


@cache
def choose() -> Literal["user", "set", "late"]:
    """Switch TF32 off in MLX unless the variable is set; child processes get it, too.

    Returns who chose: the user, or this function, "late" if MLX was imported before: it may have computed
    already.
    """
    if VARIABLE in os.environ:
        return "user"
    os.environ[VARIABLE] = "0"
    return "late" if "mlx.core" in sys.modules else "set"


def matters() -> bool:
    """Return True if MLX's default device computes in TF32 where it may: no CPU does, nor M1 to M4."""
    from mlx_port.runtime.memory import backend_name

    backend = backend_name()
    if backend != "mlx-metal":
        return backend == "mlx-cuda"
    system = tuple(int(part) for part in re.findall(r"\d+", platform.mac_ver()[0])[:2])
    return generation() >= FIRST_GENERATION and system >= FIRST_MACOS


def arithmetic() -> Arithmetic:
    """Return how float32 products are computed on MLX's default device; "unknown" if MLX may have read the
    variable before it was set.
    """
    if not matters():
        return "float32"
    if choose() == "late":
        return "unknown"
    return "tf32" if _is_on(os.environ.get(VARIABLE, "1")) else "float32"


def described() -> str:
    """Describe the arithmetic in a line for doctor and the log, and which devices have a choice."""
    found = arithmetic()
    if found == "unknown":
        return f"unknown: MLX was imported before mlx_port; import mlx_port first, or set {VARIABLE}=0"
    why = f"{VARIABLE}={os.environ.get(VARIABLE)}" if matters() else "this device has no TF32"
    return f"{found} ({why}; the variable affects {AFFECTED})"


def generation() -> int:
    """Generation of Apple's GPU, from an architecture such as applegpu_g14s; 0 if it is another."""
    import mlx.core as mx

    info: dict[str, Any] = dict(mx.device_info())
    found = re.match(r"applegpu_g(\d+)", str(info.get("architecture", "")))
    return int(found[1]) if found else 0


def _is_on(value: str) -> bool:
    """Read the variable as MLX does, with C's atoi."""
    number = re.match(r"\s*[+-]?\d+", value)
    return number is not None and int(number[0]) != 0
