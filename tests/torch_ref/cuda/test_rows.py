"""The kernels for few rows against the plain layers: the same numbers up to the order of sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda import rows as rows_of
from torch_ref.cuda.triton import INTERPRETED
from torch_ref.layers.norm import RMSNorm
from torch_ref.metavoice.first_stage import RMSNorm as MetaVoiceNorm

pytestmark = kernel_marks()


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def within(candidate: Tensor, yardstick: Tensor, oracle: Tensor, what: str) -> None:
    assert_within(candidate.cpu().numpy(), yardstick.numpy(), oracle.numpy(), what)


def norm(width: int, dtype: torch.dtype) -> RMSNorm:
    layer = RMSNorm(width, 1e-5).to(dtype)
    layer.weight.data = (normal(9, width).abs() + 0.3).to(dtype)
    return layer


SHAPES = [(8, 16), (7, 20), (33, 130), (1, 64)]  # rows of a weight, width
TEXTS = pytest.mark.parametrize("texts", [1, 2, 3])  # rows of x


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs for the small weights here, of several rows or one each; long rows in parts."""
    monkeypatch.setattr(rows_of, "TILE_BYTES", 256)
    monkeypatch.setattr(rows_of, "LONG", 32)
    monkeypatch.setattr(rows_of, "PART", 16)


@torch.inference_mode()
@pytest.mark.parametrize("scale", [1e-3, 1.0], ids=str)
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_normed_linear(rows: int, width: int, texts: int, scale: float) -> None:
    x, weight = normal(1, texts, width) * scale, normal(2, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        return norm(width, dtype)(x.to(dtype)) @ weight.to(dtype).T

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = rows_of.normed_linear(x.to(DEVICE), gain, 1e-5, weight.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_gated_linear(rows: int, width: int, texts: int) -> None:
    x, (gate, up) = normal(1, texts, width), normal(2, 2, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        y = norm(width, dtype)(x.to(dtype))
        return torch.nn.functional.silu(y @ gate.to(dtype).T) * (y @ up.to(dtype).T)

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = rows_of.gated_linear(x.to(DEVICE), gain, 1e-5, gate.to(DEVICE), up.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize("more", [0, 1, 2])
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_add_linear(rows: int, width: int, texts: int, more: int) -> None:
    x, hidden, weight = normal(1, texts + more, rows), normal(2, texts, width), normal(3, rows, width)
    rest = normal(4, rows)

    def plain(dtype: torch.dtype) -> Tensor:
        added = hidden.to(dtype) @ weight.to(dtype).T
        return x.to(dtype) + torch.cat([added, rest.to(dtype).expand(more, -1)])

    own = x.clone().to(DEVICE)
    rows_of.add_linear(own, hidden.to(DEVICE), weight.to(DEVICE), rest.to(DEVICE) if more else None)
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        pytest.param(
            torch.bfloat16,
            marks=pytest.mark.skipif(INTERPRETED, reason="the interpreter rounds towards zero"),
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("wide_gain", [True, False])
def test_half_precision_rounds_where_the_layers_do(dtype: torch.dtype, wide_gain: bool) -> None:
    """Equal except for single roundings, which another order of sums may change."""
    rows, width = 48, 64
    x, weight = normal(1, 2, width).to(dtype), normal(2, rows, width).to(dtype) / 8
    layer: Any = norm(width, torch.float32)
    if not wide_gain:  # also MetaVoice's, which rounds before the gain
        layer = MetaVoiceNorm(width, 1e-5)
        layer.weight.data = norm(width, dtype).weight.data
    own = rows_of.normed_linear(x.to(DEVICE), layer.weight.to(DEVICE), 1e-5, weight.to(DEVICE))
    wide = layer(x).double() @ weight.double().T
    assert own.dtype == dtype
    assert (own.cpu() == wide.to(dtype)).float().mean() > 0.98
    torch.testing.assert_close(own.cpu().double(), wide, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_what_they_are_used_for() -> None:
    weight = torch.empty(2, 2, device=DEVICE)
    assert rows_of.usable(weight, 64)
    assert rows_of.usable(torch.empty(2, 2), 64) == INTERPRETED
    assert not rows_of.usable(weight.double(), 64)
    assert not rows_of.usable(weight, 48)
    assert not rows_of.usable(weight, 8)
    assert not rows_of.usable(weight, 64, rows=4)
