"""Peak and free memory of the default device."""

from __future__ import annotations

import os
import platform
from typing import Any

import mlx.core as mx

from tts_core.errors import UsageError
from tts_core.memory import computer

WIRED = "MLX_PORT_WIRED"
WIRED_SPARE = 512 << 20  # bytes: caches of a few texts
CACHED = 2 << 30  # bytes: in a soak half of it cost time (docs/measured/speed.md)
SHARE = 16  # of all memory; less where that is smaller


def reset_peak() -> None:
    """Reset the peak counter."""
    mx.reset_peak_memory()


def peak_bytes() -> int:
    """Return the allocator's peak since `reset_peak`."""
    return mx.get_peak_memory()


def used_bytes() -> int:
    """Return the bytes in use now."""
    return mx.get_active_memory()


def free_bytes() -> int | None:
    """Return the memory that this process may still allocate; None if unknown.

    Unused memory in MLX's cache counts as free. Metal: the rest of the working set that Apple recommends,
    limited by the system's free memory, as both share one memory. CUDA: free memory in the device
    information, if present.
    """
    unused = mx.get_cache_memory()
    backend = backend_name()
    if backend == "mlx-cuda":
        free = mx.device_info().get("free_memory")
        return None if free is None else int(free) + unused
    free = computer.free_bytes()
    if backend == "mlx-metal":
        recommended = int(mx.device_info()["max_recommended_working_set_size"])
        left = recommended - mx.get_active_memory() - unused
        free = left if free is None else min(left, free)
    return None if free is None else max(0, free) + unused


def wants_wired() -> bool:
    """Return True if the user wants wired memory.

    Raises UsageError for a value other than 0 and 1, and for 1 in a process that mlx.launch started.
    """
    given = os.environ.get(WIRED) or "0"
    if given not in ("0", "1"):
        raise UsageError(f"{WIRED}: {given!r} is not 0 or 1")
    if given == "1" and "MLX_RANK" in os.environ:
        raise UsageError(
            f"{WIRED}: memory is wired only where one process speaks; leave it out under mlx.launch"
        )
    return given == "1"


def wire() -> None:
    """With MLX_PORT_WIRED=1, let macOS keep what is loaded in memory: its size and WIRED_SPARE.

    Off by default: with wired memory, several streams at once made macOS panic after minutes
    (ml-explore/mlx#3186, ml-explore/mlx-lm#1666). Only where one process speaks: the limit is each process's
    own. Before macOS 15 memory cannot be wired. Raises UsageError as `wants_wired`.
    """
    macos = int(platform.mac_ver()[0].partition(".")[0] or 0)
    if wants_wired() and backend_name() == "mlx-metal" and macos >= 15:
        most = int(mx.device_info()["max_recommended_working_set_size"])
        mx.set_wired_limit(min(most, mx.get_active_memory() + WIRED_SPARE))


def bound_cache() -> None:
    """Bound the unused memory that MLX keeps on a GPU: windows and texts of changing lengths would fill it.

    A lower limit that the caller has set stays.
    """
    if backend_name() != "mlx-cpu":
        info: dict[str, Any] = dict(mx.device_info())
        most = min(CACHED, int(info.get("total_memory") or info["memory_size"]) // SHARE)
        before = mx.set_cache_limit(most)
        if before < most:
            mx.set_cache_limit(before)


def backend_name() -> str:
    """Return the default device's backend name, as in tts_core.memory.machine."""
    if mx.default_device().type == mx.DeviceType.cpu:
        return "mlx-cpu"
    return "mlx-metal" if mx.metal.is_available() else "mlx-cuda"
