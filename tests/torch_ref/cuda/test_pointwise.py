"""Fused work between matrix products against the plain layers."""

import pytest
import torch
import torch.nn.functional as F

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.pointwise import add_layer_norm, add_norm, gated
from torch_ref.cuda.pointwise import rotate as turn
from torch_ref.layers.norm import LayerNorm, RMSNorm
from torch_ref.layers.rope import rotate

pytestmark = kernel_marks()


def norm(width: int, seed: int) -> RMSNorm:
    layer = RMSNorm(width, 1e-5)
    layer.weight.data = torch.rand(width, generator=torch.Generator().manual_seed(seed)) + 0.5
    return layer.to(DEVICE)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_add_norm(dtype: torch.dtype) -> None:
    """Nothing added, something, and other numbers and another norm from a row on."""
    torch.manual_seed(1)
    width, x, added = (
        44,
        torch.randn(5, 44, device=DEVICE).to(dtype),
        torch.randn(5, 44, device=DEVICE).to(dtype),
    )
    rest, first, second = torch.randn(44, device=DEVICE).to(dtype), norm(width, 1), norm(width, 2)
    tolerance = {"rtol": 0, "atol": 4e-3 if dtype == torch.float16 else 4e-6}
    torch.testing.assert_close(add_norm(x.clone(), None, first.weight, 1e-5), first(x), **tolerance)
    y = x.clone()
    torch.testing.assert_close(add_norm(y, added, first.weight, 1e-5), first(x + added), **tolerance)
    torch.testing.assert_close(y, x + added, rtol=0, atol=0)
    y = x.clone()
    own = add_norm(y, added, first.weight, 1e-5, rest=rest, rest_gain=second.weight, texts=3)
    whole = torch.cat([(x + added)[:3], (x + added)[3:] + rest])
    torch.testing.assert_close(y, whole, rtol=0, atol=0)
    torch.testing.assert_close(own, torch.cat([first(whole[:3]), second(whole[3:])]), **tolerance)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("width", [1, 44, 1024])
def test_add_layer_norm(dtype: torch.dtype, width: int) -> None:
    """Far from 0, and with numbers so small that eps matters."""
    torch.manual_seed(2)
    x = torch.randn(3, width, device=DEVICE)
    x[1] = 30 + x[1]
    x[2] *= 1e-3
    added = torch.randn(3, width, device=DEVICE).to(dtype) * 1e-3
    layer = LayerNorm(width, 1e-5)
    layer.weight.data, layer.bias.data = torch.rand(width) + 0.5, torch.randn(width)
    layer.to(DEVICE)
    given = layer.weight, layer.bias, layer.eps
    most = 4e-3 if dtype == torch.float16 else 2e-5
    own = add_layer_norm(x.clone(), None, *given, dtype=dtype)
    assert own.dtype == dtype
    torch.testing.assert_close(own, layer(x).to(dtype), rtol=1e-5, atol=most)
    y = x.clone()
    own = add_layer_norm(y, added, *given, dtype=dtype)
    torch.testing.assert_close(y, x + added, rtol=0, atol=0)
    torch.testing.assert_close(own, layer(x + added).to(dtype), rtol=1e-5, atol=most)


@torch.inference_mode()
@pytest.mark.parametrize("width", [7, 1024, 1500])
def test_gated(width: int) -> None:
    joined = torch.randn(3, 2 * width, device=DEVICE)
    gate, up = joined.chunk(2, dim=-1)
    torch.testing.assert_close(gated(joined), F.silu(gate) * up, rtol=2e-6, atol=2e-6)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize(("heads", "half"), [(1, 11), (3, 8)])
def test_turn(heads: int, half: int, dtype: torch.dtype) -> None:
    """Two texts of five rows; what is after the first heads stays."""
    torch.manual_seed(4)
    x = torch.randn(10, 2 * half * heads + 6, device=DEVICE).to(dtype)
    rotation = torch.randn(9, half, device=DEVICE), torch.randn(9, half, device=DEVICE)
    expected, five = x.clone(), (rotation[0][:5], rotation[1][:5])
    for text in expected.unflatten(0, (2, 5)):
        turned = text[:, : 2 * half * heads].unflatten(1, (heads, 2 * half)).transpose(0, 1)
        turned.copy_(rotate(turned[None].clone(), five)[0])
    turn(x, rotation, heads, 5)
    torch.testing.assert_close(x, expected, rtol=0, atol=0)
