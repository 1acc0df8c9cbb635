"""Capture of work as a CUDA graph: one launch instead of a thousand."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def capture(
    run: Callable[[], Tensor], device: torch.device, *, again: Callable[[], None]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """Capture the graph of `run`, and return it with the tensor that every replay fills.

    run: reads and writes tensors at fixed addresses. The caller must keep them alive as long as the graph,
    which does not. It is called twice, first as a warm-up.  again: undoes the changes of the warm-up.
    """
    side = side_stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # warm up: workspaces must exist before the capture
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    again()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side), uncollected():
        result = run()
    return graph, result


@contextmanager
def uncollected() -> Iterator[None]:
    """Let no cycle be collected inside: to free another graph while one is captured ends the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a device's one stream for all captures: cuBLAS keeps a workspace (32 MB on an H200) per stream.

    Kernels of a graph keep the priority of the stream where they were captured: those of steps begin before
    the codec's, which run beside them.
    """
    return _side_stream(device.index if device.index is not None else torch.cuda.current_device())


@functools.cache
def _side_stream(index: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(index, priority=-1)
