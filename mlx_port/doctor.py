"""MLX on this machine, and a test computation."""

from __future__ import annotations

from dataclasses import asdict
from importlib import metadata
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_port.kernels import row_paths
from mlx_port.runtime.arithmetic import arithmetic, described
from mlx_port.runtime.blas import load_blas
from mlx_port.runtime.memory import backend_name, free_bytes
from mlx_port.stored_voice import voice_folders
from tts_core.errors import UsageError


def facts() -> dict[str, Any]:
    """Report version, backend, memory in bytes, arithmetic, BLAS, and the fault of test computations."""
    backend = backend_name()
    info = mx.device_info()
    return {
        "version": metadata.version("mlx"),
        "backend": backend.removeprefix("mlx-"),
        "device": str(info.get("device_name", info.get("architecture", "unknown"))),
        "memory_free": free_bytes(),
        "arithmetic": arithmetic(),
        "tf32": described(),
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


def _fault() -> str | None:
    """Report the fault of products and transposed convolutions of integers, in every dtype; None if correct.

    They are large: faults of Metal were seen only at size (ml-explore/mlx#3586, #3797).
    """
    random = np.random.default_rng(0)
    x, weight = random.integers(-3, 4, (1024, 2048)), random.integers(-3, 4, (64, 2048))
    sound, kernel = random.integers(-3, 4, (1, 3000, 16)), random.integers(-3, 4, (8, 8, 16))
    known = {"products": x @ weight.T, "transposed convolutions": _transposed(sound[0], kernel)[None]}
    for dtype in (mx.float32, mx.bfloat16, mx.float16):
        try:
            found = {
                "products": mx.array(x, dtype) @ mx.array(weight, dtype).T,
                "transposed convolutions": mx.conv_transpose1d(
                    mx.array(sound, dtype), mx.array(kernel, dtype), stride=4
                ),
            }
            for name, made in found.items():
                # sums of integers are exact in float32, and rounded once
                bound = np.abs(known[name]) * 2.0**-7
                wrong = np.abs(np.array(made.astype(mx.float32)) - known[name]) > bound
                if wrong.any():
                    kind = str(dtype).removeprefix("mlx.core.")
                    return f"{name} in {kind}: {wrong.sum()} of {wrong.size} numbers are wrong"
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
    return None


def _transposed(x: np.ndarray, weight: np.ndarray, stride: int = 4) -> np.ndarray:
    """Compute a transposed convolution. (T, I), (O, K, I) → (stride (T - 1) + K, O)."""
    made = np.zeros((stride * (len(x) - 1) + weight.shape[1], len(weight)), np.int64)
    for index in range(weight.shape[1]):
        made[index : index + stride * (len(x) - 1) + 1 : stride] += x @ weight[:, index].T
    return made
