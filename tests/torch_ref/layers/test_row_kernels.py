"""The kernels for few rows against the plain layers: the same numbers up to the order of sums.

They run on CUDA; on a CPU in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tolerance import assert_within
from torch_ref.layers import row_kernels
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.cache import RingCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions, rotate_pairs
from torch_ref.metavoice.first_stage import RMSNorm as MetaVoiceNorm

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

if row_kernels.triton is None:
    pytest.skip("Triton is not installed", allow_module_level=True)
pytestmark = [] if INTERPRETED else pytest.mark.cuda


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
    """Tiles so small that the small weights need several programs, of one or several rows each."""
    monkeypatch.setattr(row_kernels, "TILE", 64)


@torch.inference_mode()
@pytest.mark.parametrize("scale", [1e-3, 1.0], ids=str)
@pytest.mark.parametrize("count", [1, 3])
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_normed_linear(rows: int, width: int, texts: int, count: int, scale: float) -> None:
    x, weights = normal(1, texts, width) * scale, normal(2, count, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        y = norm(width, dtype)(x.to(dtype))
        return torch.stack([y @ weight.to(dtype).T for weight in weights])

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = row_kernels.normed_linear(x.to(DEVICE), gain, 1e-5, tuple(weights.to(DEVICE)))
    within(own, plain(torch.float32), plain(torch.float64), f"{count} of {rows} x {width}")


@torch.inference_mode()
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_gated_linear(rows: int, width: int, texts: int) -> None:
    x, (gate, up) = normal(1, texts, width), normal(2, 2, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        y = norm(width, dtype)(x.to(dtype))
        return torch.nn.functional.silu(y @ gate.to(dtype).T) * (y @ up.to(dtype).T)

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = row_kernels.gated_linear(x.to(DEVICE), gain, 1e-5, gate.to(DEVICE), up.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@TEXTS
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_add_linear(rows: int, width: int, texts: int) -> None:
    x, hidden, weight = normal(1, texts, rows), normal(2, texts, width), normal(3, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        return x.to(dtype) + hidden.to(dtype) @ weight.to(dtype).T

    own = x.clone().to(DEVICE)
    row_kernels.add_linear(own, hidden.to(DEVICE), weight.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 5, 23, 24, 25, 47, 200])
@pytest.mark.parametrize("capacity", [24, 300])
@pytest.mark.parametrize(("texts", "turned"), [(1, True), (2, False), (3, True)])
def test_attend(length: int, capacity: int, texts: int, turned: bool) -> None:
    """Rows at position `length` with a partly full, just full or wrapped ring; the cache takes the rows."""
    heads, width = 3, 16
    before, projected = normal(1, 2, texts, heads, length, width), normal(2, 3, texts, heads * width)

    def cache(dtype: torch.dtype, device: str) -> RingCache:
        rows = RingCache(capacity, capacity)
        rows.extend(*before.to(dtype).to(device))
        return rows

    def plain(dtype: torch.dtype) -> tuple[Tensor, RingCache]:
        rows = cache(dtype, "cpu")
        rotation = RotaryPositions(300, width, 10000.0)(length, 1)
        query, key, value = projected.to(dtype).unflatten(-1, (heads, 1, width)).unbind()
        if turned:
            query, key = rotate_pairs(query, rotation), rotate_pairs(key, rotation)
        keys, values = rows.extend(key, value)
        return scaled_dot_product_attention(query, keys, values).flatten(1), rows

    own_cache, tables = cache(torch.float32, DEVICE), RotaryPositions(300, width, 10000.0).to(DEVICE)
    assert own_cache.buffers is not None
    position, rotation = torch.tensor([length], device=DEVICE), tables(0, 300) if turned else None
    own = row_kernels.attend(projected.to(DEVICE), position, *own_cache.buffers, rotation)
    (known, known_cache), (exact, _) = plain(torch.float32), plain(torch.float64)
    within(own, known, exact, f"attention at {length} of {capacity}")
    for mine, other in zip(own_cache.buffers, known_cache.buffers or (), strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=0, atol=1e-6)


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
    x, weights = normal(1, 2, width).to(dtype), normal(2, 3, rows, width).to(dtype) / 8
    layer: Any = norm(width, torch.float32)
    if not wide_gain:  # also MetaVoice's, which rounds before the gain
        layer = MetaVoiceNorm(width, 1e-5)
        layer.weight.data = norm(width, dtype).weight.data
    own = row_kernels.normed_linear(x.to(DEVICE), layer.weight.to(DEVICE), 1e-5, tuple(weights.to(DEVICE)))
    wide = torch.stack([layer(x).double() @ weight.double().T for weight in weights])
    assert own.dtype == dtype
    assert (own.cpu() == wide.to(dtype)).float().mean() > 0.98
    torch.testing.assert_close(own.cpu().double(), wide, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_what_they_are_used_for() -> None:
    weight = torch.empty(2, 2, device=DEVICE)
    assert row_kernels.usable(weight, 64) == weight.is_cuda
    assert not row_kernels.usable(torch.empty(2, 2), 64)
    assert not row_kernels.usable(weight.double(), 64)
    assert not row_kernels.usable(weight, 48)
    assert not row_kernels.usable(weight, 8)
    assert not row_kernels.usable(weight, 64, rows=4)
