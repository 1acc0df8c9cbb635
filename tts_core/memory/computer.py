"""Memory, disk space, processor and system of this machine."""

from __future__ import annotations

import platform
import re
import shutil
from pathlib import Path
from typing import Any

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def total_bytes() -> int | None:
    """Return the physical memory; None if the system does not report it."""
    found = _memory()
    return None if found is None else found.total


def free_bytes() -> int | None:
    """Return the memory that a process may still allocate, within its container's limit.

    None if the system does not report it.
    """
    found = _memory()
    known = [*([] if found is None else [found.available]), *_within_cgroups()]
    return min(known, default=None)


def _memory() -> Any:
    """Read psutil's memory figures; None if it fails."""
    import psutil

    try:
        return psutil.virtual_memory()
    except (OSError, ValueError, NotImplementedError):
        return None


def _within_cgroups() -> list[int]:
    """Linux: memory left by the limits of this process's control group (v2) and its parents."""
    try:
        own = (PROC / "self/cgroup").read_text().rpartition("::")[2].strip()
    except OSError:
        return []
    group = CGROUPS / own.lstrip("/")
    left = []
    for folder in (group, *group.parents):
        if not folder.is_relative_to(CGROUPS):
            break
        try:
            limit, used = ((folder / name).read_text() for name in ("memory.max", "memory.current"))
            cached = re.search(r"^inactive_file (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
            left.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return [max(0, size) for size in left]


def free_disk_bytes(folder: Path) -> int:
    """Return the free space of the disk of `folder`, which need not exist."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def processor() -> str:
    """Return the processor's name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", (PROC / "cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def system() -> str:
    """Return operating system and version."""
    macos = platform.mac_ver()[0]
    return f"macOS {macos} {platform.machine()}" if macos else platform.platform()
