"""Kernels' Metal texts, compiled by clang and run on a CPU under sanitizers, against the plain forms."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mlx_port.kernels
from mlx_port.kernels import add_norm, attention_support, noise, norm_rotate, rotate, rows
from mlx_port.kernels.source import Kernel
from tests.metal_text.cases import BF16, CASES, F32, Case, drawn, normed, product, quantized, split, turned
from tests.metal_text.compiler import Fault, find
from tests.metal_text.text import Processor
from tests.mlx_port.kernels.test_kernels import TRIALS, named

pytestmark = [pytest.mark.metal_text, pytest.mark.rest]


def kernels() -> dict[str, Kernel]:
    """Every kernel of the package, by name."""
    names = [module.name for module in pkgutil.iter_modules(mlx_port.kernels.__path__, "mlx_port.kernels.")]
    found = [value for name in names for value in vars(importlib.import_module(name)).values()]
    return {kernel.name: kernel for kernel in found if isinstance(kernel, Kernel)}


def test_every_kernel_has_cases_and_a_fault() -> None:
    assert {case.kernel for case in CASES} == set(kernels())
    assert {getattr(change.module, change.attribute).name for change in FAULTS} == set(kernels())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel} {case.about}")
def test_a_text_runs_and_agrees(case: Case, processor: Processor) -> None:
    case.compare()
    assert processor.ran == {case.kernel}


# not those of MLX's own attention, which has no text here, nor of wide rows, which take long
OURS = [trial for trial in TRIALS if trial[0] is not attention_support.trial and rows.WIDE not in trial]


@pytest.mark.parametrize("trial", OURS, ids=named)
def test_a_trial_of_load_passes(trial: tuple[Any, ...], processor: Processor) -> None:
    assert trial[0](*trial[1:])
    assert processor.ran


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@dataclass(frozen=True)
class Change:
    """A fault made on purpose: the kernel's name in its module, a part of its text, and the wrong one.

    case: sees it.  words: of the message.
    """

    module: ModuleType
    attribute: str
    right: str
    wrong: str
    case: Callable[[], None]
    words: str


two_rows = partial(normed, BF16, F32, BF16, 2, 1, 1024)
OUTSIDE = "heap-buffer-overflow"
FAULTS = [
    Change(add_norm, "KERNEL", BARRIER, "", two_rows, "bound"),
    Change(add_norm, "KERNEL", "parts[32]", "parts[8]", two_rows, "out of bounds"),
    Change(rows, "KERNEL", "if (column >= N) return;", "", partial(product, BF16, 2, 5, 24), OUTSIDE),
    Change(rows, "KERNEL", "k < K;", "k <= K;", partial(product, BF16, 2, 8, 256), OUTSIDE),
    Change(
        rows,
        "KERNEL",
        "const device T* line",
        "const T* line",
        partial(product, F32, 2, 5, 12),
        "cannot init",
    ),
    Change(
        rows, "QUANTIZED_KERNEL", "k / SPAN", "k / 32", partial(quantized, BF16, 2, 7, 320, 4, 64), OUTSIDE
    ),
    Change(noise, "KERNEL", "if (at < numbers) ", "", partial(drawn, 2, (5, 7)), f"not equal|{OUTSIDE}"),
    Change(
        rotate,
        "KERNEL",
        "spin_shape[0] > 1 ? row : 0",
        "row",
        partial(turned, F32, 5, 2, 1, 4, False, 1),
        OUTSIDE,
    ),
    Change(
        norm_rotate,
        "KERNEL",
        "spin_shape[0] > 1 ? row : 0",
        "row",
        partial(split, F32, F32, 5, 2, 1, 4, 1),
        OUTSIDE,
    ),
    Change(
        norm_rotate,
        "KERNEL",
        "gains[head * width + i + half_width]",
        "gains[head * width + i]",
        partial(split, BF16, BF16, 2, 3, 1, 66, 1),
        "bound",
    ),
    Change(
        rotate, "KERNEL", "table + half_width", "table", partial(turned, F32, 5, 2, 1, 4, True, 5), "bound"
    ),
]


@pytest.mark.parametrize("change", FAULTS, ids=lambda change: f"{change.module.__name__} {change.right}")
def test_a_fault_made_on_purpose_is_seen(
    change: Change, processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = getattr(change.module, change.attribute)
    assert change.right in kernel.metal, "the text has changed: name another fault"
    wrong = kernel.metal.replace(change.right, change.wrong)
    monkeypatch.setattr(change.module, change.attribute, replace(kernel, metal=wrong))
    with pytest.raises(AssertionError, match=change.words):
        change.case()


def test_a_barrier_that_some_threads_pass_by_is_seen(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = add_norm.KERNEL.metal.replace(BARRIER, f"if (thread_index_in_simdgroup == 0) {BARRIER}")
    monkeypatch.setattr(add_norm, "KERNEL", replace(add_norm.KERNEL, metal=wrong))
    with pytest.raises(Fault, match=r"FAULT: .* returned"):
        two_rows()


def test_a_number_that_two_groups_write_is_seen(
    processor: Processor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU one of them wins, not always the same."""
    right = "if (lane == 0)"
    assert right in rows.KERNEL.metal
    wrong = rows.KERNEL.metal.replace(right, f"out[r * N] = sum;\n    {right}")
    monkeypatch.setattr(rows, "KERNEL", replace(rows.KERNEL, metal=wrong))
    with pytest.raises(Fault, match="two threadgroups write one number"):
        product(F32, 2, 9, 12)


def test_without_clang_the_reason_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    reason = "metal_text: no clang++-19; no clang++; install clang-19 and libclang-rt-19-dev"
    assert find(tmp_path) == reason
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find(tmp_path) == "metal_text: the fibers and sections of run.cpp are Linux's"
