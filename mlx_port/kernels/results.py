"""Results of kernels' trials, kept in the cache folder for later processes.

One file for each version of MLX, chip and system: another compiler tries again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx

from tts_core.voice.embedded import cache_folder

LARGEST = 1 << 20  # bytes
COMPILING = ("mlx_port.kernels.source", "mlx_port.kernels.nvrtc")


def known(trial: Callable[..., bool], variant: tuple[Any, ...]) -> bool | None:
    """Return the result of an earlier process; None if there is none."""
    return _read().get(_key(trial, variant))


def record(trial: Callable[..., bool], variant: tuple[Any, ...], passed: bool) -> None:
    """Note a result. A folder that cannot be written keeps none."""
    results = _read()
    results[_key(trial, variant)] = passed
    with suppress(OSError):
        file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file().parent, prefix=".kernels-", delete=False) as made:
            made.write(json.dumps(results, indent=1, sort_keys=True))
        os.replace(made.name, file())


def file() -> Path:
    """Return the file of this MLX, chip and system."""
    info: dict[str, Any] = dict(mx.device_info())
    system = platform.mac_ver()[0] or platform.release()
    here = (metadata.version("mlx"), info.get("device_name"), info.get("architecture"), system)
    return cache_folder() / f"kernels-{_digest('|'.join(map(str, here)).encode())}.json"


@cache
def _read() -> dict[str, bool]:
    """Read the file; anything but true and false by name is as good as no file."""
    try:
        with file().open("rb") as source:
            found = json.loads(source.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, bool)}


def _key(trial: Callable[..., bool], variant: tuple[Any, ...]) -> str:
    """Name a trial; a changed text of its kernel, or another way to compile it, is another one."""
    texts = (getattr(sys.modules.get(name), "__file__", None) for name in (trial.__module__, *COMPILING))
    text = b"".join(Path(text).read_bytes() for text in texts if text)
    return " ".join((trial.__module__, trial.__qualname__, _digest(text), *map(str, variant)))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
