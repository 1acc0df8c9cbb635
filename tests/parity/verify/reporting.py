"""A stand-in for the comparison of `mlx-port verify`, which reports where it runs.

It is imported in other processes, and imports no framework.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any


def report(*, destination: str, **flags: Any) -> bool:
    """Write facts to the file `destination`. Fails unless a seed is given."""
    get = ctypes.CDLL(None).getenv  # as MLX, written in C++, reads it
    get.restype = ctypes.c_char_p
    facts = {
        "process": os.getpid(),
        "parent": os.getppid(),
        "variable": get(b"MLX_ENABLE_TF32").decode(),
        "is_fresh": "mlx.core" not in sys.modules,
    }
    Path(destination).write_text(json.dumps(facts), "utf-8")
    return bool(flags["seed"])
