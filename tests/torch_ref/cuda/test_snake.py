"""Snake in one pass against the plain layer."""

import pytest
import torch

from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.codecs.dac import Snake1d
from torch_ref.cuda.snake import snake, usable

pytestmark = kernel_marks()


@torch.inference_mode()
@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("shape", [(1, 3, 7), (2, 5, 1024), (1, 2, 2500)], ids=str)
def test_snake(shape: tuple[int, ...], scale: float) -> None:
    """Also for arguments of the sine far from 0."""
    torch.manual_seed(1)
    x, layer = scale * torch.randn(shape), Snake1d(shape[1])
    layer.alpha.data = torch.rand(1, shape[1], 1) * 2 + 0.05
    own = snake(x.to(DEVICE), layer.alpha.to(DEVICE))
    exact = Snake1d(shape[1]).double()
    exact.alpha.data = layer.alpha.double()
    assert_within(own.cpu().numpy(), layer(x).numpy(), exact(x.double()).numpy(), f"snake {shape}")


@torch.inference_mode()
def test_half_precision() -> None:
    """Rounded once, at the end; the convolution after it takes that dtype."""
    torch.manual_seed(1)
    x, alpha = torch.randn(1, 3, 50, device=DEVICE).half(), torch.rand(1, 3, 1, device=DEVICE) + 0.1
    own = snake(x, alpha)
    assert own.dtype == torch.float16
    assert torch.equal(own, snake(x.float(), alpha).half())


def test_where_it_runs() -> None:
    x = torch.zeros(1, 2, 3, device=DEVICE)
    with torch.inference_mode():
        assert usable(x)
        assert not usable(x.double())
        assert not usable(x.transpose(1, 2))
    assert not usable(x)
