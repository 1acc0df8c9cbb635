"""Reads from the middle of a captured graph."""

import pytest
import torch

from torch_ref.cuda.capture import capture
from torch_ref.cuda.early_read import EarlyRead


def test_what_was_read_stays() -> None:
    x = torch.arange(3, dtype=torch.int32)
    early = EarlyRead(x)
    early.put(x)
    read = early.wait()
    early.put(x + 4)
    assert read.tolist() == [0, 1, 2]
    assert early.wait().tolist() == [4, 5, 6]


@pytest.mark.cuda
def test_each_replay_is_read_before_it_ends() -> None:
    """The host waits for the present replay's number, not for the work after it."""
    device = torch.device("cuda")
    count = torch.zeros(1, dtype=torch.int32, device=device)
    early = EarlyRead(count)

    def run() -> torch.Tensor:
        torch.cuda._sleep(20_000_000)  # cycles, about 10 ms
        early.put(count.add_(1))
        torch.cuda._sleep(100_000_000)
        return count

    def again() -> None:
        count.zero_()

    graph, _ = capture(run, device, again=again)
    for replay in range(1, 6):
        graph.replay()
        assert early.wait().tolist() == [replay]
        assert not torch.cuda.current_stream().query()
