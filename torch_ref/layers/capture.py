"""Work captured as a CUDA graph: one launch instead of a thousand."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor


def capture(
    run: Callable[[], Tensor], device: torch.device, *, again: Callable[[], None]
) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """The graph of `run`, and the tensor that every replay of it fills.

    run: reads and writes tensors that stay where they are, which the caller holds as long as the graph:
    it does not; called twice, once to warm up.  again: puts back what the first call has moved on.
    """
    side = _side_stream(device.index if device.index is not None else torch.cuda.current_device())
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # warm up: workspaces must exist before the capture
        run()
    torch.cuda.current_stream(device).wait_stream(side)
    again()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        result = run()
    return graph, result


@functools.cache
def _side_stream(index: int) -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a workspace (32 MB on an H200) for every stream that it has met."""
    return torch.cuda.Stream(index)
