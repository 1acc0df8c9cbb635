"""Snake activation in one pass over memory, in place of five."""

# pyright: reportInvalidTypeForm=false
# (Triton reads the kernel's annotations)

from __future__ import annotations

import torch
from torch import Tensor

from torch_ref.cuda.triton import INTERPRETED, jit, tl, triton

BLOCK = 1024
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def usable(x: Tensor) -> bool:
    """Return whether the kernel supports x: on an NVIDIA GPU, at most float32, without gradients."""
    if triton is None or torch.version.hip is not None or not (x.is_cuda or INTERPRETED):
        return False
    return x.dtype in DTYPES and not torch.is_grad_enabled() and x.is_contiguous()


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    """Compute x + sin²(αx)/(α + 1e-9) in float32. (B, C, T), alpha (1, C, 1) → (B, C, T) in x's dtype."""
    out = torch.empty_like(x)
    rows, length = x.shape[0] * x.shape[1], x.shape[2]
    if x.numel():
        _snake[rows, triton.cdiv(length, BLOCK)](x, alpha, out, x.shape[1], length, BLOCK=BLOCK, num_warps=4)
    return out


@jit
def _snake(x, alpha, out, channels, length, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(alpha + row % channels).to(tl.float32)
    at = row.to(tl.int64) * length + col
    y = tl.load(x + at, mask=col < length, other=0.0).to(tl.float32)
    s = tl.sin(a * y)
    factor = tl.div_rn(tl.full([], 1.0, dtype=tl.float32), a + 1e-9)
    tl.store(out + at, (y + factor * (s * s)).to(out.dtype.element_ty), mask=col < length)
