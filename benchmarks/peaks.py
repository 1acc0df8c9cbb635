"""Peaks of memory: of a process, of an allocator, and of a call in PyTorch; and a call's seconds."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

MEMORY = {"torch_ref": "torch_ref.device", "mlx_port": "mlx_port.runtime.memory"}  # functions of each side


class Resident:
    """Growth of the process's resident set since this object was created."""

    def __init__(self) -> None:
        self.base = self._kilobytes("VmRSS")

    def restart(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        return 1024 * (self._kilobytes("VmHWM") - self.base)

    def _kilobytes(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


class Allocated:
    """Peak of a side's allocator. device: [a torch device] in PyTorch, empty in MLX."""

    def __init__(self, side: str, device: Sequence[Any]):
        self.memory, self.device = import_module(MEMORY[side]), device

    def restart(self) -> None:
        self.memory.reset_peak(*self.device)

    def peak(self) -> int:
        return self.memory.peak_bytes(*self.device)


def peak_of(call: Callable[[], Any], device: str) -> int:
    """Bytes that a call in PyTorch takes at its peak, over those that were there. device: cpu or cuda."""
    import torch

    gc.collect()
    if device == "cpu":
        resident = Resident()
        resident.restart()
        call()
        return resident.peak()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def seconds_of(call: Callable[[], Any], device: str) -> float:
    """Seconds of a call in PyTorch, its device's work included."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def described(device: str) -> str:
    """The machine, PyTorch and its device, in a line."""
    import torch

    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    place = f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"{place}, torch {torch.__version__}, {device} ({where})"
