"""Products of a few float32 rows with weights that float16 holds exactly, by FBGEMM on x86 CPUs.

Weights that were published in float16 keep their numbers when packed, in half of float32's bytes; FBGEMM
converts them in registers and adds in float32. Two rows with the embedded voice's decoder (17 MB in float32,
one thread): 0.7 ms, torch's float32 products 2.3 ms.

A row's numbers depend on the number of rows and on its place: FBGEMM has a kernel for each number of rows up
to six (AVX2), and those for one and two rows add in another order. In whole blocks of four, 16 at most, they
do not; torch_ref.cpu.row_products tries it on the CPU that runs.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # (R, D) → (R, N)


def supported() -> bool:
    """Return True if this build of torch, on this CPU, has the kernels."""
    x86 = platform.machine() in ("x86_64", "AMD64")
    has_kernels = "fbgemm" in torch.backends.quantized.supported_engines
    return x86 and has_kernels and hasattr(torch.ops.quantized, "linear_dynamic_fp16")


def exact(weights: Sequence[Tensor]) -> bool:
    """Return True if all numbers of float32 weights are finite and float16 holds them."""
    return all(
        torch.equal(weight.half().float(), weight) and bool(weight.isfinite().all()) for weight in weights
    )


def packed(weight: Tensor) -> Product:
    """Pack an exact weight (N, D) for rows of float32."""
    ops = torch.ops.quantized
    held, run = ops.linear_prepack_fp16(weight.detach(), None), ops.linear_dynamic_fp16.default

    def product(x: Tensor) -> Tensor:
        return run(x, held)

    return product
