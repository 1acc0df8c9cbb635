"""Replacement for CUDA graphs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_ref.cuda.triton import INTERPRETED


class Eager:
    """A graph that runs the work again, into the same result."""

    def __init__(self, run: Callable[[], torch.Tensor], result: torch.Tensor):
        self.run, self.result = run, result

    def replay(self) -> None:
        self.result.copy_(self.run())


def eager(run: Callable[[], torch.Tensor], device: torch.device, *, again: Callable[[], None]) -> tuple:
    """Like `capture`: run the work once to warm up; the capture itself computes nothing."""
    result = torch.full_like(run(), -7)
    again()
    return Eager(run, result), result


def uncaptured(monkeypatch: pytest.MonkeyPatch, slots: Any) -> None:
    """Let a module that captures run in Triton's interpreter, which has neither graphs nor threads."""
    if INTERPRETED:
        monkeypatch.setattr(slots, "capture", eager)
        monkeypatch.setattr(slots, "compile_together", lambda calls: [call() for call in calls])
