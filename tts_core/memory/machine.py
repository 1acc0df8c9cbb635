"""This machine, asked of the system itself: memory, disk and names."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def total_bytes() -> int | None:
    """Physical memory; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return None


def free_bytes() -> int | None:
    """Memory that a process may still take: what is available, within its container's limit.

    None where the system does not tell.
    """
    known = [size for size in (_available(), *_within_cgroups()) if size is not None]
    return min(known, default=None)


def _available() -> int | None:
    if sys.platform == "darwin":
        return _reclaimable()
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", (PROC / "meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    return 1024 * int(found[1]) if found else None


def _reclaimable() -> int | None:
    """macOS: pages that are free or can be had without writing any."""
    try:
        told = subprocess.run(["/usr/bin/vm_stat"], capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    page = re.search(r"page size of (\d+) bytes", told.stdout)
    counts = re.findall(r"^Pages (?:free|inactive|speculative|purgeable):\s+(\d+)", told.stdout, re.MULTILINE)
    return int(page[1]) * sum(map(int, counts)) if page and counts else None


def _within_cgroups() -> list[int]:
    """Linux: what the limits of this process's control group (v2) and its parents leave."""
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
    """Free space where `folder` is, or would be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def processor() -> str:
    """The processor's name."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", (PROC / "cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def system() -> str:
    """Operating system and version."""
    macos = platform.mac_ver()[0]
    return f"macOS {macos} {platform.machine()}" if macos else platform.platform()
