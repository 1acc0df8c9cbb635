"""Peak and free memory of the default device."""

from __future__ import annotations

import platform

import mlx.core as mx

from tts_core.memory import machine


def reset_peak() -> None:
    """Reset the peak counter."""
    mx.reset_peak_memory()


def peak_bytes() -> int:
    """Return the allocator's peak since `reset_peak`."""
    return mx.get_peak_memory()


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
    free = machine.free_bytes()
    if backend == "mlx-metal":
        recommended = int(mx.device_info()["max_recommended_working_set_size"])
        left = recommended - mx.get_active_memory() - unused
        free = left if free is None else min(left, free)
    return None if free is None else max(0, free) + unused


def wire() -> None:
    """Let macOS keep the weights in memory; before macOS 15 it cannot."""
    if backend_name() == "mlx-metal" and int(platform.mac_ver()[0].partition(".")[0] or 0) >= 15:
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))


def backend_name() -> str:
    """Return the default device's backend name, as in tts_core.memory.terms."""
    if mx.default_device().type == mx.DeviceType.cpu:
        return "mlx-cpu"
    return "mlx-metal" if mx.metal.is_available() else "mlx-cuda"
