"""Triton, where it is installed, and arguments of kernels for a device."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

triton: Any = import_module("triton") if find_spec("triton") else None
tl: Any = import_module("triton.language") if triton else None

INTERPRETED = triton is not None and os.environ.get("TRITON_INTERPRET") == "1"  # on a CPU, for tests
DEPENDENT_LAUNCH = (9, 0)  # the first capability with it


def jit(function: Any) -> Any:
    """The function as a Triton kernel; unchanged, and never called, without Triton."""
    return triton.jit(function) if triton else function


@functools.cache
def pdl(device: torch.device) -> dict[str, Any]:
    """Arguments of a kernel with a `PDL` switch: whether it starts before the previous one has ended."""
    if INTERPRETED or torch.cuda.get_device_capability(device) < DEPENDENT_LAUNCH:
        return {"PDL": False}
    return {"PDL": True, "launch_pdl": True}


@functools.cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a GPU; 2 in the interpreter, so that its programs take several tiles."""
    return 2 if INTERPRETED else torch.cuda.get_device_properties(device).multi_processor_count


def compile_together(calls: Sequence[Callable[[], object]]) -> None:
    """Launch different kernels from a thread each: one after the other, their compilation takes seconds."""
    with ThreadPoolExecutor(len(calls)) as threads:
        for made in [threads.submit(call) for call in calls]:
            made.result()
