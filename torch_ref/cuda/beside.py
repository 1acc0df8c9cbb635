"""Work on a second CUDA stream, beside the captured steps of the first, and copies of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


class Copies:
    """Tensors being copied to the host, on the current stream."""

    def __init__(self, tensors: Sequence[Tensor]):
        self._copies = [torch.empty(x.shape, dtype=x.dtype, pin_memory=True) for x in tensors]
        for copy, x in zip(self._copies, tensors, strict=True):
            copy.copy_(x, non_blocking=True)
        self._arrived = torch.cuda.Event()
        self._arrived.record()

    def ready(self) -> bool:
        """Return True once all are there."""
        return self._arrived.query()

    def take(self) -> list[np.ndarray]:
        """Wait for the copies. The arrays are views of pinned memory: copy what is kept."""
        self._arrived.synchronize()
        return [copy.numpy() for copy in self._copies]


class Beside:
    """A second stream of a device, for work of the same thread.

    The work reads weights, and tensors that it copies to the device or computes itself. All that it allocates
    belongs to the second stream, so memory that it frees is used again in the order of that stream, and no
    tensor crosses to the first one.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device)  # of the lowest priority; captured steps have a higher one
        self.stream.wait_stream(torch.cuda.current_stream(device))  # weights are there

    def launch(self, work: Callable[[], Sequence[Tensor]]) -> Copies:
        """Begin work, and the copies of its tensors; waits for nothing."""
        with torch.cuda.stream(self.stream):
            return Copies(work())
