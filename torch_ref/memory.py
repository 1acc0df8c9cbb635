"""How much memory a run took, and how much there is."""

from __future__ import annotations

import resource
import sys

import torch

from tts_core.memory import machine


def reset_peak(device: torch.device) -> None:
    """Start counting anew, where the device has a counter of its own."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int:
    """CUDA: the allocator's peak since `reset_peak`.

    MPS: what the driver holds now. CPU: the process's peak so far.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        return torch.mps.driver_allocated_memory()
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_bytes(device: torch.device) -> int | None:
    """What this process may still take there; None where nobody tells.

    CUDA: what the driver has free, and what the allocator holds unused. MPS: below the working set that Apple
    recommends, and what the system has, since both are one memory.
    """
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    free = machine.free_bytes()
    if device.type == "mps":
        left = torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return max(0, left if free is None else min(left, free))
    return free


def backend_name(device: torch.device) -> str:
    """A device's name in tts_core.dia.memory."""
    return f"torch-{device.type}"
