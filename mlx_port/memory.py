"""How much memory a run took, and how much there is."""

from __future__ import annotations

import mlx.core as mx

from tts_core.memory import machine


def reset_peak() -> None:
    """Start counting anew."""
    mx.reset_peak_memory()


def peak_bytes() -> int:
    """The allocator's peak since `reset_peak`."""
    return mx.get_peak_memory()


def free_bytes() -> int | None:
    """What this process may still take; None where nobody tells.

    What MLX keeps unused counts as free. Metal: below the working set that Apple recommends, and what the
    system has, since both are one memory. CUDA: what the device information tells of free memory, if it does.
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


def backend_name() -> str:
    """The default device's name in tts_core.dia.memory."""
    if mx.default_device().type == mx.DeviceType.cpu:
        return "mlx-cpu"
    return "mlx-metal" if mx.metal.is_available() else "mlx-cuda"
