"""Checks, before any allocation, that a run fits in memory, and advice on what would fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tts_core.errors import ResourceError
from tts_core.memory.terms import BYTES, Estimate

QUANTIZATIONS = {  # flags of convert-weights → entry in config.json
    "-q --q-bits 8": {"group_size": 64, "bits": 8, "mode": "affine"},
    "-q": {"group_size": 64, "bits": 4, "mode": "affine"},
}
HALVES = {"torch-cpu": ("bfloat16",), "torch-mps": ("float16",)}  # fast 16-bit types; others have both


class Loaded(Protocol):
    """A function that estimates a model's smallest generation."""

    def __call__(self, *, dtype: str, backend: str, quantization: Mapping[str, Any] | None) -> Estimate:
        """Return the estimate, whose `loaded` counts the weights."""
        ...


def check_loading(
    title: str,
    estimate: Loaded,
    *,
    dtype: str,
    backend: str,
    free: int | None,
    quantization: Mapping[str, Any] | None = None,
    halves: Sequence[str] | None = None,
    requantized: bool = True,
) -> None:
    """Raise ResourceError, naming a dtype or quantization that fits, unless the weights fit in `free` bytes.

    title: of the model, in the message.
    free: None (unknown) passes.
    halves: 16-bit types to suggest; None uses the backend's fast ones.
    requantized: True if a dtype makes quantized weights smaller.
    """

    def takes(dtype: str, quantization: Mapping[str, Any] | None, backend: str) -> int:
        return estimate(dtype=dtype, backend=backend, quantization=quantization).loaded

    needed = takes(dtype, quantization, backend)
    if free is None or needed <= free:
        return
    options: dict[str, int] = {}
    if requantized or quantization is None or backend.startswith("torch"):
        for name in narrower(dtype, halves_of(backend) if halves is None else halves):
            options[f"dtype {name}"] = takes(name, quantization, backend)
    if quantization is None:
        port = backend if backend.startswith("mlx") else "mlx-cpu"
        for flags, how in QUANTIZATIONS.items():
            options[f"a copy for MLX made with convert-weights {flags}"] = takes("bfloat16", how, port)
    raise ResourceError(
        f"memory: {title}'s weights in {dtype} take {gigabytes(needed)} on {backend}, "
        f"{gigabytes(free)} are free; {advice(options, free)}"
    )


def check_running(
    what: str, needed: int, *, backend: str, free: int | None, options: Callable[[int], Mapping[str, int]]
) -> None:
    """Raise ResourceError, naming what would fit, unless a generation fits in `free` bytes.

    needed: bytes besides the weights.
    what: the generation, in the message.
    options: free bytes → other generations and their bytes; only called for the message.
    """
    if free is None or needed <= free:
        return
    raise ResourceError(
        f"memory: {what} take {gigabytes(needed)} on {backend} beside the weights, {gigabytes(free)} are "
        f"free; {advice(options(free), free)}"
    )


def narrower(dtype: str, halves: Sequence[str]) -> list[str]:
    """List those of float32 and `halves` that are smaller than a dtype."""
    return [name for name in ("float32", *halves) if BYTES[name] < BYTES[dtype]]


def halves_of(backend: str) -> tuple[str, ...]:
    """Return the fast 16-bit types of a backend, for a network that does not overflow in them."""
    return HALVES.get(backend, ("bfloat16", "float16"))


def advice(options: Mapping[str, int], free: int) -> str:
    """Write the end of an error message: the options that fit in `free` bytes, with their sizes."""
    fitting = [f"{option} ({gigabytes(size)})" for option, size in options.items() if size <= free]
    return f"{' or '.join(fitting)} would fit" if fitting else "free some memory, or use a larger machine"


def largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Find the largest number up to `limit` that fits, by bisection; 0 if even 1 does not."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def gigabytes(size: int) -> str:
    """Format bytes as "1.23 GB"."""
    return f"{size / 1e9:.2f} GB"
