"""Replayed calls, and work on a second stream, against the same calls by themselves."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from torch_ref.cuda import replayed
from torch_ref.cuda.replayed import Replayed, ReplayedAside
from torch_ref.host import Host

pytestmark = pytest.mark.cuda


class Calls:
    """A call that counts itself; a replay does not."""

    def __init__(self) -> None:
        self.count, self.factor = 0, 2.0

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return given.float().cumsum(-1) * self.factor


def counted(call: Replayed, first: int, size: int) -> list[torch.Tensor]:
    return [call(torch.arange(first, first + size, device="cuda"))]


def run(call: Replayed, *sizes: int) -> list[np.ndarray]:
    beside = Host(torch.nn.Linear(1, 1, device="cuda"))
    found = []
    for size in sizes:
        first = len(found)  # other numbers each time; the work makes its tensors on its own stream
        [made] = beside.launch(partial(counted, call, first, size)).take()
        np.testing.assert_array_equal(made, 2 * np.cumsum(np.arange(first, first + size), dtype=np.float32))
        found.append(made.copy())
    return found


def test_a_shape_is_captured_at_its_second_time() -> None:
    calls = Calls()
    call = Replayed(calls, lambda: 0, lambda shape: True)
    run(call, 5, 5, 5, 5)
    assert calls.count == 2
    run(call, 7, 5, 7, 5, 7)
    assert calls.count == 4


def test_aside_a_shape_is_captured_at_its_first_time() -> None:
    """In turn with the current stream. The call overwrites what it was given, and keeps a result itself."""
    kept, counts = torch.zeros(9, device="cuda"), list[int]()

    def add(given: torch.Tensor) -> list[torch.Tensor]:
        counts.append(len(given))
        kept[: len(given)] += given.mul_(2)
        return [given + 1]

    call = ReplayedAside(add, lambda: None, lambda shape: shape[0] < 9)
    for size in (5, 7, 5, 5, 7, 9, 9):
        kept.zero_()
        [made] = call(torch.arange(size, device="cuda", dtype=torch.float32))
        np.testing.assert_array_equal(kept[:size].cpu().numpy(), 2 * np.arange(size))
        np.testing.assert_array_equal(made.cpu().numpy(), 1 + 2 * np.arange(size))
    assert counts == [5, 5, 7, 7, 9, 9], "each run and captured; large ones run"


def test_large_shapes_and_other_settings_are_not_mixed_up() -> None:
    calls, setting = Calls(), ["a"]
    call = Replayed(calls, lambda: setting[0], lambda shape: shape[0] < 10)
    run(call, 12, 12, 12)
    assert calls.count == 3, "never captured"
    run(call, 4, 4)
    setting[0] = "b"
    run(call, 4)
    assert calls.count == 6


def test_the_shape_used_least_recently_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replayed, "SHAPES", 2)
    calls = Calls()
    call = Replayed(calls, lambda: 0, lambda shape: True)
    run(call, 3, 3, 4, 4, 5, 5, 4)
    assert calls.count == 6
    run(call, 3, 3)
    assert calls.count == 8, "the first is captured anew"


def test_results_outlive_the_next_replay() -> None:
    call = Replayed(Calls(), lambda: 0, lambda shape: True)
    beside = Host(torch.nn.Linear(1, 1, device="cuda"))
    pending = [
        beside.launch(lambda one=one: [call(torch.full((1000,), float(one), device="cuda"))])
        for one in range(6)
    ]
    for one, each in enumerate(pending):
        [made] = each.take()
        np.testing.assert_array_equal(made, 2.0 * one * np.arange(1, 1001, dtype=np.float32))
