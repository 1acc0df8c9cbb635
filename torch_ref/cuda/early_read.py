"""Reads from the middle of a captured graph."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class EarlyRead:
    """A copy to the host, which has it while the rest of the graph runs.

    like: a tensor of the shape that is read.
    """

    def __init__(self, like: Tensor):
        self.copy = torch.empty_like(like, device="cpu", pin_memory=like.is_cuda)
        self.done = torch.cuda.Event(external=True) if like.is_cuda else None

    def put(self, x: Tensor) -> None:
        """Copy x, the first rows, to the host. A part of the graph."""
        self.copy[: len(x)].copy_(x, non_blocking=True)
        if self.done is not None:
            self.done.record()

    def wait(self) -> np.ndarray:
        """Wait for the copy of the last replay, and return its numbers."""
        if self.done is not None:
            self.done.synchronize()
        return self.copy.numpy().copy()
