"""Reads from the device that begin early and are waited for late."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class _Copy(NamedTuple):
    """A copy to the host in progress. done: None if there is nothing to wait for."""

    copy: Tensor
    done: torch.cuda.Event | None


Reading = _Copy


def begin_read(x: Tensor) -> Reading:
    """Start a copy of the current value, after the work already queued on the device. Does not wait."""
    if not x.is_cuda:
        return _Copy(x.clone(), None)
    copy = torch.empty_like(x, device="cpu", pin_memory=True).copy_(x, non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    return _Copy(copy, done)


def finish_read(read: Reading) -> np.ndarray:
    """Wait for the device and read; nothing else waits."""
    if read.done is not None:
        read.done.synchronize()
    return read.copy.cpu().numpy()
