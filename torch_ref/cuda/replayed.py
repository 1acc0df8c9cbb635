"""A network's calls as CUDA graphs, one for each shape that comes again.

The host takes 8.3 ms to launch the kernels of DAC's decode of 24 frames, and an H200 1.4 ms to run them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ref.cuda.capture import uncollected

SHAPES = 128  # that are captured at once; DAC's streams have 80


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    given: Tensor
    made: Tensor


class Replayed:
    """A call on one stream, captured when a shape comes for the second time; elsewhere than on CUDA the call.

    run: from one tensor to another; reads nothing else but weights.
    setting: what else its result depends on.
    is_small: True for a shape that may be captured: graphs share what the largest one needs, besides the
    memory of calls which are not captured.
    """

    def __init__(
        self,
        run: Callable[[Tensor], Tensor],
        setting: Callable[[], Hashable],
        is_small: Callable[[torch.Size], bool],
    ):
        self._run, self._setting, self._is_small = run, setting, is_small
        self._graphs = OrderedDict[Hashable, _Graph | None]()
        self._pool: Any = None

    @torch.inference_mode()
    def __call__(self, given: Tensor) -> Tensor:
        """Run the call on the current stream, which must not be the default one, and always the same."""
        if not given.is_cuda or not self._is_small(given.shape):
            return self._run(given)
        key = given.shape, given.dtype, self._setting()
        if key not in self._graphs:
            self._graphs[key] = None
            while len(self._graphs) > SHAPES:
                self._graphs.popitem(last=False)
            return self._run(given)  # workspaces must exist before the capture
        self._graphs.move_to_end(key)
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = self._captured(given)
        graph.given.copy_(given)
        graph.graph.replay()
        return graph.made.clone()  # the next graph computes in the same memory

    def _captured(self, given: Tensor) -> _Graph:
        """Capture the call. torch.cuda.graph would wait for all streams, and give cached memory back."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, given = torch.cuda.CUDAGraph(), given.clone()
        with uncollected():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                made = self._run(given)
            finally:
                graph.capture_end()
        return _Graph(graph, given, made)
