"""Which convolutions of the codecs come near the fault of large kernels on MPS (pytorch#188335): none.

The fault was seen with batches from 2 on and kernels from 256 on; the memory that they overrun grows with
both. docs/measured/limits.md says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.contract.speakers import TEXTS, every_model, request, speaker, spoken
from tests.torch_ref.limits.full_size import codec, codes, zeros
from torch_ref.limits import Backend, enforce
from torch_ref.limits.convolution import LARGE_KERNEL

pytestmark = pytest.mark.rest

FRAMES = 4


def both_ways(name: str, *codebooks: int) -> None:
    made = codec(name)
    made.decode(made.encode(zeros(2, FRAMES * made.config.hop_length), *codebooks))


RUNS: dict[str, Callable[[], None]] = {
    "dac": lambda: both_ways("dac"),
    "encodec": lambda: both_ways("encodec", 8),
    "mimi": lambda: both_ways("mimi", 8),
    "vocos": lambda: codec("vocos").decode(codes(2, 8, FRAMES), 1),
    "qwen3_codec": lambda: both_ways("qwen3_codec"),
}
GROUPED = {"vocos": {("plain", 7)}, "qwen3_codec": {("plain", 7)}}
PLACES = 8  # of a server


class Convolution(NamedTuple):
    """A convolution that ran. way: plain or transposed."""

    way: str
    kernel: int
    groups: int
    batch: int


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> set[Convolution]:
    """Every convolution that runs."""
    calls: set[Convolution] = set()

    def record(way: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **options: Any) -> Tensor:
            groups = options.get("groups", (*args, *[1] * 7)[6])
            calls.add(Convolution(way, args[1].shape[2], groups, len(args[0])))
            return function(*args, **options)

        return call

    monkeypatch.setattr(F, "conv1d", record("plain", F.conv1d))
    monkeypatch.setattr(F, "conv_transpose1d", record("transposed", F.conv_transpose1d))
    return calls


@pytest.mark.parametrize("name", RUNS)
def test_no_kernel_is_large(name: str, found: set[Convolution]) -> None:
    """Vocos and the decoder of Qwen3's codec have grouped ones; EnCodec and DAC have none, and Mimi sums its
    own without a convolution.
    """
    RUNS[name]()
    assert 7 <= max(each.kernel for each in found) <= 16 < LARGE_KERNEL
    assert {(each.way, each.kernel) for each in found if each.groups > 1} == GROUPED.get(name, set())


@every_model
def test_the_product_with_the_batch_is_small(model: str, found: set[Convolution]) -> None:
    """A session of a server's places, some of which end together: small networks in batches of full size.

    Mimi and Qwen3's codec have a batch of 1 there: each request by itself.
    """
    requests = [request(model, "torch", TEXTS[0], seed=3) for _ in range(PLACES)]
    found.clear()
    spoken(speaker(model, "torch").session(PLACES), *requests)
    assert found
    assert max(each.kernel * each.batch for each in found) <= 16 * PLACES < 2 * LARGE_KERNEL
    if model in ("dia2", "qwen3"):
        assert {each.batch for each in found} == {1}


@pytest.mark.parametrize("name", RUNS)
def test_a_batch_breaks_no_rule(name: str) -> None:
    with enforce(Backend("mps", "2.15.0", "26.2")) as watch, torch.no_grad():
        RUNS[name]()
    assert watch.calls > 0
