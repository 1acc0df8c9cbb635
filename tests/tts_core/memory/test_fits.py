"""Refusals and advice, from invented sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tts_core.errors import ResourceError, UsageError
from tts_core.memory.fits import Plan, largest
from tts_core.memory.footprint import Footprint
from tts_core.memory.machine import Machine

QUANTIZED = {"group_size": 64, "bits": 4, "mode": "affine"}


@dataclass(frozen=True)
class BytesJob:
    """A hundred bytes a frame of each text."""

    frames: int = 1
    batch: int = 1


def sizes(configs: Any, job: BytesJob, machine: Machine) -> Footprint:
    """PyTorch dequantizes what it loads."""
    size = {"float32": 400, "bfloat16": 200, "float16": 200}[machine.dtype]
    if machine.held is not None:
        size = 15 * machine.held["bits"]
    return Footprint(size, 0, 25 * machine.size * job.frames * job.batch, 0, 0, 0)


def plan(**how: Any) -> Plan:
    return Plan(sizes, lambda configs, text, seconds: BytesJob(int(seconds or 5)), lambda _: 1.0, (), **how)


def advice(backend: str, free: int, quantization: Any = None, **how: Any) -> str:
    with pytest.raises(ResourceError) as caught:
        plan(**how).check_loading({}, Machine("float32", backend, free, quantization))
    return str(caught.value).rpartition("; ")[2]


def test_weights_that_just_fit_are_loaded() -> None:
    plan().check_loading({}, Machine("float32", "mlx-cpu", 400))
    plan().check_loading({}, Machine("float32", "mlx-cpu"))
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


def test_a_refusal_names_the_largest_length_and_batch() -> None:
    with pytest.raises(ResourceError) as caught:
        plan().check_running({}, BytesJob(9, 4), Machine("float32", "torch-cpu", 2700))
    assert str(caught.value) == (
        "memory: 4 texts of 9.0 s of speech take 0.00 GB on torch-cpu beside the weights, 0.00 GB are free; "
        "a batch of 3 (0.00 GB) or max_frames 6, 6.0 s (0.00 GB) or dtype bfloat16 (0.00 GB) would fit"
    )
    plan().check_running({}, BytesJob(9, 3), Machine("float32", "torch-cpu", 2700))
    plan().check_running({}, BytesJob(9, 9), Machine("float32", "torch-cpu"))


def test_more_seconds_than_a_run_has() -> None:
    short = Plan(sizes, lambda *_: BytesJob(5), lambda _: 1.0, ())
    assert short.job({}, "So.", 5.0, 3) == BytesJob(5, 3)
    with pytest.raises(UsageError, match=r"seconds: 7 is more than this model's limit, 5\.0"):
        short.job({}, None, 7.0, 1)
    with pytest.raises(UsageError, match="there are no words"):
        short.job({}, " ", None, 1)


def test_the_largest_number_that_fits() -> None:
    for limit in range(6):
        for most in range(8):
            assert largest(limit, lambda number, most=most: number <= most) == min(limit, most)
