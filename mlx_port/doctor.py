"""MLX on this machine, and a test computation."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib import metadata
from typing import Any

import mlx.core as mx

from mlx_port.api import voice_folders
from mlx_port.blas import load_blas
from mlx_port.kernels import row_paths
from mlx_port.memory import backend_name, free_bytes
from tts_core.errors import UsageError


def facts() -> dict[str, Any]:
    """Report version, backend, memory in bytes, TF32, BLAS, and the fault of a test computation (or None)."""
    backend = backend_name()
    info = mx.device_info()
    return {
        "version": metadata.version("mlx"),
        "backend": backend.removeprefix("mlx-"),
        "device": str(info.get("device_name", info.get("architecture", "unknown"))),
        "memory_free": free_bytes(),
        "tf32": _tf32(backend),
        "blas": asdict(load_blas()),
        "voice": next(
            (str(folder) for folder in voice_folders() if (folder / "config.json").is_file()), None
        ),
        "rows": _rows(),
        "fault": _fault(),
    }


def _rows() -> dict[str, dict[str, str]]:
    """Report the path of products of two rows, and its reason, by dtype."""
    try:
        kinds = (*row_paths.EVERY, row_paths.QUANTIZED)
        return {kind: asdict(row_paths.chosen(kind)) for kind in kinds}
    except UsageError as error:
        return {"every dtype": {"path": "none", "why": str(error)}}


def _tf32(backend: str) -> str:
    """Report whether float32 products may be rounded to TF32; MLX reads the variable on import."""
    if os.environ.get("MLX_ENABLE_TF32", "1") == "0":
        return "off (MLX_ENABLE_TF32=0)"
    return "without effect on a CPU" if backend == "mlx-cpu" else "on; MLX_ENABLE_TF32=0 turns it off"


def _fault() -> str | None:
    """Report the fault of a product, a convolution and a softmax of small integers; None if correct."""
    x = mx.arange(24, dtype=mx.float32).reshape(1, 8, 3)
    try:
        product = (x[0] @ x[0].T)[1, 2].item()
        convolved = mx.conv1d(x, mx.ones((2, 3, 3)), padding=1)[0, 1, 1].item()
        total = mx.softmax(x, axis=-1).sum().item()
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    right = abs(product - 86) < 0.5 and abs(convolved - 36) < 0.5 and abs(total - 8) < 0.01
    return None if right else f"it computes {product}, {convolved} and {total} instead of 86, 36 and 8"
