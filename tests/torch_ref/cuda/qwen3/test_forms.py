"""Which form of the slots a network gets, with Triton or without."""

import torch

from tests.tiny.networks import qwen3_config
from torch_ref.batch import RunningBatch
from torch_ref.cuda.batch import sizes
from torch_ref.cuda.qwen3.decoder import make_slots
from torch_ref.cuda.qwen3.step import runs
from torch_ref.qwen3.qwen3 import Qwen3


def test_heads_of_other_widths_take_the_plain_form() -> None:
    network = Qwen3(qwen3_config())
    assert not runs(network)
    slots = make_slots(network, texts=2, capacity=40)
    assert type(slots) is RunningBatch
    assert slots.rows.capacity == 40


def test_float64_takes_the_plain_form() -> None:
    assert not runs(Qwen3(qwen3_config()).to(torch.float64))


def test_graphs_for_powers_of_two_and_all_rows() -> None:
    found = {texts: sizes(texts) for texts in (1, 2, 3, 5, 8, 33)}
    assert found == {
        1: [1],
        2: [1, 2],
        3: [1, 2, 3],
        5: [1, 2, 4, 5],
        8: [1, 2, 4, 8],
        33: [1, 2, 4, 8, 16, 32, 33],
    }
