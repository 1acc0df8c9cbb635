"""The backend that selects rules: device, torch version, macOS version and chip."""

from __future__ import annotations

import functools
import platform
import re
import subprocess
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

import torch

Version = tuple[int, ...]

OLDEST, NEWEST = "2.11", "2.15"  # torch: pyproject.toml's, and the last whose wheel was read
NEWEST_MACOS = "27"
MINIMUM_MACOS = ((OLDEST, "14.0"), ("2.15", "15.0"))  # deployment target of the wheels


def parse(text: str) -> Version:
    """Parse the numbers of a version: "2.13.0+cpu" gives (2, 13, 0). Raises ValueError without any."""
    found = re.match(r"\d+(\.\d+)*", text)
    if not found:
        raise ValueError(f"version: {text!r} does not start with a number; give one such as 2.6.0")
    return tuple(int(part) for part in found.group().split("."))


def minimum_macos(torch_version: str) -> str:
    """Return the oldest macOS that the wheels of this torch run on."""
    reached = [macos for first, macos in MINIMUM_MACOS if parse(first) <= parse(torch_version)]
    return reached[-1] if reached else MINIMUM_MACOS[0][1]


@dataclass(frozen=True)
class Backend:
    """A device and the versions that decide its limits. None means unknown: the worst is assumed.

    chip: "Apple M2 Pro" or "M2" for MPS; the compute capability, such as "7.5", for CUDA.
    """

    device: Literal["mps", "cuda", "cpu"] = "mps"
    torch: str = torch.__version__
    macos: str | None = None
    chip: str | None = None

    def __post_init__(self) -> None:
        if self.device not in ("mps", "cuda", "cpu"):
            raise ValueError(f"backend: device is {self.device!r}; give mps, cuda or cpu")
        parse(self.torch)
        if self.macos is not None:
            parse(self.macos)

    @property
    def torch_version(self) -> Version:
        """Parsed version, for comparison with the rules' bounds."""
        return parse(self.torch)

    @classmethod
    def here(cls, device: str) -> Backend:
        """Return this machine's backend for a device type; queries the system once."""
        return _here(device)

    def __str__(self) -> str:
        parts = [self.device, f"torch {self.torch}"]
        parts += [f"macOS {self.macos}"] if self.macos else []
        return ", ".join(parts + ([self.chip] if self.chip else []))


@functools.cache
def _here(device: str) -> Backend:
    chip = None
    if device == "mps":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        try:
            chip = subprocess.run(
                command, capture_output=True, text=True, timeout=5, check=True
            ).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            chip = None  # unknown: the rules of every chip apply
        return Backend("mps", torch.__version__, platform.mac_ver()[0] or None, chip or None)
    if device == "cuda":
        chip = ".".join(map(str, torch.cuda.get_device_capability()))
        return Backend("cuda", torch.__version__, None, chip)
    return Backend("cpu", torch.__version__)


ENFORCED: ContextVar[Backend | None] = ContextVar("enforced backend", default=None)


def backend_of(device: torch.device) -> Backend | None:
    """Return the backend whose rules apply to a device: enforced, else this machine's; None for a CPU."""
    enforced = ENFORCED.get()
    if enforced is not None or device.type == "cpu":
        return enforced
    return _here(device.type) if device.type in ("mps", "cuda") else None
