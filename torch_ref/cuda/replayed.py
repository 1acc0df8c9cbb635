"""A network's calls as CUDA graphs, one for each shape that comes again.

The host takes 8.3 ms to launch the kernels of DAC's decode of 24 frames, and an H200 1.4 ms to run them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_ref.cuda.capture import side_stream, uncollected

SHAPES = 128  # that are captured at once; DAC's streams have 80


class _Graph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    given: list[Tensor]
    made: Sequence[Tensor]


class ReplayedTensors:
    """A call on one stream, captured when shapes come for the second time; elsewhere than on CUDA the call.

    run: from tensors to tensors, of which it may change the given ones; reads nothing else but weights, and
    what has one address for good.
    setting: what else its result depends on.
    is_small: True for a shape of the first tensor that may be captured: graphs share what the largest one
    needs, if that is captured first, besides the memory of calls which are not captured.
    """

    at_once = False

    def __init__(
        self,
        run: Callable[..., Sequence[Tensor]],
        setting: Callable[[], Hashable],
        is_small: Callable[[torch.Size], bool],
    ):
        self._run, self._setting, self._is_small = run, setting, is_small
        self._graphs = OrderedDict[Hashable, _Graph | None]()
        self._inputs = dict[tuple[int, torch.dtype], Tensor]()  # of all graphs, by place
        self._pool: Any = None

    @torch.inference_mode()
    def __call__(self, *given: Tensor) -> Sequence[Tensor]:
        """Run the call on the current stream, which must not be the default one, and always the same."""
        if not given[0].is_cuda or not self._is_small(given[0].shape):
            return self._run(*given)
        key = *((item.shape, item.dtype) for item in given), self._setting()
        if key not in self._graphs:
            self._graphs[key] = None
            while len(self._graphs) > SHAPES:
                self._graphs.popitem(last=False)
            made = self._run(*given)  # workspaces must exist before the capture
            if self.at_once:
                self._graphs[key] = self._captured(given)
            return made
        self._graphs.move_to_end(key)
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = self._captured(given)
        torch._foreach_copy_(graph.given, list(given))  # pyright: ignore[reportPrivateImportUsage]
        graph.graph.replay()
        return [sound.clone() for sound in graph.made]  # the next graph computes in the same memory

    def _captured(self, tensors: Sequence[Tensor]) -> _Graph:
        """Capture the call. torch.cuda.graph would wait for all streams, and give cached memory back."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph, given = torch.cuda.CUDAGraph(), [self._input(*item) for item in enumerate(tensors)]
        with uncollected():
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                made = self._run(*given)
            finally:
                graph.capture_end()
        return _Graph(graph, given, made)

    def _input(self, index: int, tensor: Tensor) -> Tensor:
        """Return the memory that a graph reads a tensor from, as large as that of any graph before."""
        key = index, tensor.dtype
        if key not in self._inputs or self._inputs[key].numel() < tensor.numel():
            self._inputs[key] = tensor.new_empty(tensor.numel())
        return self._inputs[key][: tensor.numel()].view(tensor.shape)


class ReplayedAside(ReplayedTensors):
    """The same on the stream of captures, in turn with the current one; captured as shapes first come.

    A call may overwrite what it was given.
    """

    at_once = True

    @torch.inference_mode()
    def __call__(self, *given: Tensor) -> Sequence[Tensor]:
        """Run the call. Waits for nothing."""
        if not given[0].is_cuda:
            return self._run(*given)
        device = given[0].device
        side, current = side_stream(device), torch.cuda.current_stream(device)
        side.wait_stream(current)
        with torch.cuda.stream(side):
            made = super().__call__(*given)
        current.wait_stream(side)
        for item in given:
            item.record_stream(side)
        for sound in made:
            sound.record_stream(current)
        return made


class Replayed:
    """The same of a call from one tensor to another."""

    def __init__(
        self,
        run: Callable[[Tensor], Tensor],
        setting: Callable[[], Hashable],
        is_small: Callable[[torch.Size], bool],
    ):
        self._tensors = ReplayedTensors(lambda given: (run(given),), setting, is_small)

    def __call__(self, given: Tensor) -> Tensor:
        """Run the call on the current stream, which must not be the default one, and always the same."""
        return self._tensors(given)[0]
