"""Which convolutions of the codecs come near the fault of large kernels on MPS (pytorch#188335): none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torch_ref.codecs.dac import Dac
from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.mimi import Mimi
from torch_ref.codecs.vocos import Vocos
from torch_ref.limits import Backend, enforce
from torch_ref.limits.convolution import LARGE_KERNEL
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.mimi import MIMI_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ

pytestmark = pytest.mark.rest

FRAMES = 4


def network(kind: Callable[[Any], nn.Module], config: Any) -> Any:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return kind(config).to("meta").eval()


def both_ways(codec: Any, hop: int, *codebooks: int) -> None:
    codec.decode(codec.encode(torch.zeros(2, FRAMES * hop, device="meta"), *codebooks))


def vocode(codec: Any) -> None:
    codec.decode(torch.zeros(2, 8, FRAMES, dtype=torch.int32, device="meta"), 1)


RUNS: dict[str, Callable[[], None]] = {
    "dac": lambda: both_ways(network(Dac, DAC_44KHZ), DAC_44KHZ.hop_length),
    "encodec": lambda: both_ways(network(Encodec, ENCODEC_24KHZ), ENCODEC_24KHZ.hop_length, 8),
    "mimi": lambda: both_ways(network(Mimi, MIMI_24KHZ), MIMI_24KHZ.hop_length, 8),
    "vocos": lambda: vocode(network(Vocos, VOCOS_ENCODEC_24KHZ)),
}
GROUPED = {"dac": set(), "encodec": set(), "mimi": set(), "vocos": {("plain", 7)}}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int, int]]:
    """Every convolution that runs: way, kernel, groups."""
    calls: set[tuple[str, int, int]] = set()

    def record(way: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any, **options: Any) -> Tensor:
            calls.add((way, args[1].shape[2], options.get("groups", (*args, *[1] * 7)[6])))
            return function(*args, **options)

        return call

    monkeypatch.setattr(F, "conv1d", record("plain", F.conv1d))
    monkeypatch.setattr(F, "conv_transpose1d", record("transposed", F.conv_transpose1d))
    return calls


@pytest.mark.parametrize("name", RUNS)
def test_no_kernel_is_large(name: str, found: set[tuple[str, int, int]]) -> None:
    """Vocos has grouped ones; EnCodec and DAC have none, and Mimi sums its own without a convolution."""
    RUNS[name]()
    assert 7 <= max(kernel for _, kernel, _ in found) <= 16 < LARGE_KERNEL
    assert {(way, kernel) for way, kernel, groups in found if groups > 1} == GROUPED[name]


@pytest.mark.parametrize("name", RUNS)
def test_a_batch_breaks_no_rule(name: str) -> None:
    with enforce(Backend("mps", "2.15.0", "26.2")) as watch, torch.no_grad():
        RUNS[name]()
    assert watch.calls > 0
