"""What an error about too little memory may offer: dtypes, quantised copies, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tts_core.dia.memory import BYTES

QUANTIZATIONS = {  # flags of convert-weights → what config.json says of them
    "-q --q-bits 8": {"group_size": 64, "bits": 8, "mode": "affine"},
    "-q": {"group_size": 64, "bits": 4, "mode": "affine"},
}
HALVES = {"torch-cpu": ("bfloat16",), "torch-mps": ("float16",)}  # what a backend does well; others do both


def narrower(dtype: str, halves: tuple[str, ...]) -> list[str]:
    """Those of float32 and `halves` that take less than a dtype."""
    return [name for name in ("float32", *halves) if BYTES[name] < BYTES[dtype]]


def halves_of(backend: str) -> tuple[str, ...]:
    """The 16-bit types that a backend does well, for a network that overflows in none."""
    return HALVES.get(backend, ("bfloat16", "float16"))


def quantised_copies(takes: Callable[[str, Mapping[str, Any], str], int], backend: str) -> dict[str, int]:
    """Copies that convert-weights makes → their bytes in MLX, by `takes` (dtype, quantization, backend)."""
    port = backend if backend.startswith("mlx") else "mlx-cpu"
    return {
        f"a copy for MLX made with convert-weights {flags}": takes("bfloat16", how, port)
        for flags, how in QUANTIZATIONS.items()
    }


def that_fit(options: Mapping[str, int], free: int) -> list[str]:
    """The options that fit into `free` bytes, with their sizes."""
    return [f"{option} ({gigabytes(size)})" for option, size in options.items() if size <= free]


def advice(fitting: list[str]) -> str:
    """The end of the error's line."""
    return f"{' or '.join(fitting)} would fit" if fitting else "free some memory, or use a larger machine"


def gigabytes(size: int) -> str:
    """Bytes as "1.23 GB"."""
    return f"{size / 1e9:.2f} GB"
