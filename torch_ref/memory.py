"""Peak and free memory of a device."""

from __future__ import annotations

import resource
import sys

import torch

from tts_core.memory import computer


def reset_peak(device: torch.device) -> None:
    """Reset the peak counter of a device that has one."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """Return CUDA's allocator peak since `reset_peak`.

    MPS: memory held by the driver now. CPU: the process's peak so far.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_bytes(device: torch.device) -> int | None:
    """Return the memory that this process may still allocate there; None if unknown.

    CUDA: free memory of the driver and unused memory of the allocator. MPS: the rest of the working set that
    Apple recommends, limited by the system's free memory, as both share one memory.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    free = computer.free_bytes()
    if device.type == "mps":
        left = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return max(0, left if free is None else min(left, free))
    return free


def backend_name(device: torch.device) -> str:
    """Return a device's backend name, as in tts_core.memory.terms."""
    return f"torch-{device.type}"
