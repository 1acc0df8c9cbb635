"""Advice on weights that do not fit, from invented sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tts_core.errors import ResourceError
from tts_core.memory.fits import check_loading, largest
from tts_core.memory.machine import Machine
from tts_core.memory.terms import Estimate, Term

QUANTIZED = {"group_size": 64, "bits": 4, "mode": "affine"}


def estimate(job: None, machine: Machine) -> Estimate:
    """PyTorch dequantizes what it loads."""
    size = {"float32": 400, "bfloat16": 200, "float16": 200}[machine.dtype]
    if machine.held is not None:
        size = 15 * machine.held["bits"]
    return Estimate(machine.backend, (Term("weights", size, ""),), ())


def advice(backend: str, free: int, quantization: Any = None, **how: Any) -> str:
    with pytest.raises(ResourceError) as caught:
        check_loading("Dia", estimate, None, Machine("float32", backend, free, quantization), **how)
    return str(caught.value).rpartition("; ")[2]


def test_weights_that_just_fit_are_loaded() -> None:
    check_loading("Dia", estimate, None, Machine("float32", "mlx-cpu", 400))
    check_loading("Dia", estimate, None, Machine("float32", "mlx-cpu"))
    assert advice("mlx-cpu", 399).startswith("dtype bfloat16 (")


def test_narrower_types_are_advised_where_they_make_the_weights_smaller() -> None:
    """Not for a quantized copy in MLX, unless the rest follows the type."""
    fixed = {"quantization": QUANTIZED, "requantized": False}
    assert advice("torch-cpu", 250, **fixed).startswith("dtype bfloat16 (")
    assert advice("mlx-cpu", 50, **fixed) == "free some memory, or use a larger machine"


def test_a_quantized_copy_is_advised_by_its_own_size() -> None:
    assert advice("torch-cpu", 100) == (
        "a copy for MLX made with convert-weights -q --q-bits 4 (0.00 GB) would fit"
    )
    assert "convert-weights -q (" in advice("torch-cpu", 130)


def test_the_largest_number_that_fits() -> None:
    for limit in range(6):
        for most in range(8):
            assert largest(limit, lambda number, most=most: number <= most) == min(limit, most)
