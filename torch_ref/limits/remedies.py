"""Replacements of torch's operations that are right on every backend and in every dtype."""

from __future__ import annotations

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Return float32 and float64 unchanged, narrower types as a float32 copy."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def first_largest(x: Tensor) -> Tensor:
    """Compute argmax over the last axis, the first of equals. (..., V) → (...) int64; V if a row has NaN.

    torch.argmax is not used: on MPS it is wrong on macOS 27 before torch 2.13.
    """
    indices = torch.arange(x.shape[-1], device=x.device)
    best = x.amax(dim=-1, keepdim=True)
    return torch.where(x == best, indices, x.shape[-1]).amin(dim=-1)
