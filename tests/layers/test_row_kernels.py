"""The kernels for one row against the plain layers: the same numbers up to the order of sums.

They run on CUDA; on a CPU in Triton's interpreter (TRITON_INTERPRET=1).
"""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from tests.tolerance import assert_within
from torch_ref.layers import row_kernels
from torch_ref.layers.attention import scaled_dot_product_attention
from torch_ref.layers.cache import RingCache
from torch_ref.layers.norm import RMSNorm
from torch_ref.layers.rope import RotaryPositions, rotate_pairs

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


SHAPES = [(8, 16), (7, 20), (33, 130), (1, 64)]  # rows, width


@torch.inference_mode()
@pytest.mark.parametrize("scale", [1e-3, 1.0], ids=str)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_normed_linear(rows: int, width: int, count: int, scale: float) -> None:
    x, weights = normal(1, width) * scale, normal(2, count, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        return torch.stack([weight.to(dtype) @ norm(width, dtype)(x.to(dtype)) for weight in weights])

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = row_kernels.normed_linear(x.to(DEVICE), gain, 1e-5, tuple(weights.to(DEVICE)))
    within(own, plain(torch.float32), plain(torch.float64), f"{count} of {rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_gated_linear(rows: int, width: int) -> None:
    x, (gate, up) = normal(1, width), normal(2, 2, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        y = norm(width, dtype)(x.to(dtype))
        return torch.nn.functional.silu(gate.to(dtype) @ y) * (up.to(dtype) @ y)

    gain = norm(width, torch.float32).weight.to(DEVICE)
    own = row_kernels.gated_linear(x.to(DEVICE), gain, 1e-5, gate.to(DEVICE), up.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "width"), SHAPES)
def test_add_linear(rows: int, width: int) -> None:
    x, hidden, weight = normal(1, rows), normal(2, width), normal(3, rows, width)

    def plain(dtype: torch.dtype) -> Tensor:
        return x.to(dtype) + weight.to(dtype) @ hidden.to(dtype)

    own = x.clone().to(DEVICE)
    row_kernels.add_linear(own, hidden.to(DEVICE), weight.to(DEVICE))
    within(own, plain(torch.float32), plain(torch.float64), f"{rows} x {width}")


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 5, 23, 24, 25, 47, 200])
@pytest.mark.parametrize("capacity", [24, 300])
def test_attend(length: int, capacity: int) -> None:
    """A row at position `length`, the ring not full, just full and wrapped; the cache holds the row after."""
    heads, width = 3, 16
    before, projected = normal(1, 2, 1, heads, length, width), normal(2, 3, heads * width)

    def cache(dtype: torch.dtype, device: str) -> RingCache:
        rows = RingCache(capacity, capacity)
        rows.extend(*before.to(dtype).to(device))
        return rows

    def plain(dtype: torch.dtype) -> tuple[Tensor, RingCache]:
        rows = cache(dtype, "cpu")
        rotation = RotaryPositions(300, width, 10000.0)(length, 1)
        query, key, value = projected.to(dtype).unflatten(-1, (1, heads, 1, width)).unbind()
        keys, values = rows.extend(rotate_pairs(key, rotation), value)
        return scaled_dot_product_attention(rotate_pairs(query, rotation), keys, values).flatten(), rows

    own_cache, tables = cache(torch.float32, DEVICE), RotaryPositions(300, width, 10000.0).to(DEVICE)
    position = torch.tensor([length], device=DEVICE)
    own = row_kernels.attend(projected.to(DEVICE), tables(0, 300), position, own_cache)
    (known, known_cache), (exact, _) = plain(torch.float32), plain(torch.float64)
    within(own, known, exact, f"attention at {length} of {capacity}")
    for mine, other in zip(own_cache.buffers or (), known_cache.buffers or (), strict=True):
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
def test_half_precision_rounds_where_the_layers_do(dtype: torch.dtype) -> None:
    """Equal but for single roundings, which sums in another order may turn."""
    rows, width = 48, 64
    x, weights = normal(1, width).to(dtype), normal(2, 3, rows, width).to(dtype) / 8
    layer = norm(width, torch.float32)
    y = layer(x)
    gain = layer.weight.to(DEVICE)
    own = row_kernels.normed_linear(x.to(DEVICE), gain, 1e-5, tuple(weights.to(DEVICE)))
    wide = torch.stack([weight.double() @ y.double() for weight in weights])
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
