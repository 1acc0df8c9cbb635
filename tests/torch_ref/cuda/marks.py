"""Devices for tests of Triton's kernels: CUDA, or a CPU with Triton's interpreter (TRITON_INTERPRET=1)."""

import pytest

from torch_ref.cuda.triton import INTERPRETED, triton

DEVICE = "cpu" if INTERPRETED else "cuda"


def kernel_marks() -> list[pytest.MarkDecorator]:
    """Marks of a module whose tests launch kernels; skips it where Triton is not installed."""
    if triton is None:
        pytest.skip("Triton is not installed: it comes with torch for CUDA", allow_module_level=True)
    return [] if INTERPRETED else [pytest.mark.cuda]
