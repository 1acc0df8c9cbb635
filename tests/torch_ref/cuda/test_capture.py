"""Captures as CUDA graphs, and the collector of cycles."""

import gc
from typing import Any

import pytest
import torch

from torch_ref.cuda.capture import capture, uncollected


def test_nothing_is_collected_inside() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.cuda
def test_a_graph_in_a_cycle_does_not_end_the_capture_of_another() -> None:
    device, x = torch.device("cuda"), torch.ones(3, device="cuda")
    cycle: list[Any] = [*capture(lambda: x + 1, device, again=lambda: None)]
    cycle.append(cycle)
    del cycle

    def work() -> torch.Tensor:
        made = [[] for _ in range(5000)]  # enough for the collector to start
        return x + len(made)

    graph, result = capture(work, device, again=lambda: None)
    graph.replay()
    assert result.tolist() == [5001.0] * 3
