"""Peaks of memory, for benchmarks that run each job in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
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
