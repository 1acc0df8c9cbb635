"""DAC's decoder on kernels against the plain one, in each precision's layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import YARDSTICK
from tests.tiny.networks import dac_config, tiny
from tests.tolerance import assert_within
from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.codecs.dac import Dac, Snake1d
from torch_ref.cuda.dia.dac import FusedDac, activated, summed

pytestmark = kernel_marks()
LAYOUTS = {"time last": torch.contiguous_format, "channels last": torch.channels_last}


def codec() -> Dac:
    """A tiny DAC whose biases are large, so that each of them counts."""
    built: Any = YARDSTICK.network("dac", tiny("dac", seed=5))
    random = torch.Generator().manual_seed(1)
    for name, one in built.named_parameters():
        if name.endswith("bias"):
            one.data = torch.randn(one.shape, generator=random).to(one)
    return built.to(DEVICE).eval()


def codes(rows: int, frames: int) -> torch.Tensor:
    config = dac_config()
    found = np.random.default_rng(frames).integers(
        0, config.codebook_size, (rows, config.n_codebooks, frames)
    )
    return torch.from_numpy(found.astype(np.int32)).to(DEVICE)


def tf32_error(built: Dac, layout: str, truth: torch.Tensor) -> float:
    """Bound the error of TF32: each convolution in a row rounds its inputs and weights to 11 bits.

    cuDNN takes TF32 for some shapes only, so the plain decoder may be nearer.
    """
    depth = 2 + sum(1 + 2 * 3 for _ in built.config.upsampling_ratios)
    return depth * 2 * 2**-11 * float(truth.norm()) if layout == "tf32" else 0.0


@torch.inference_mode()
@pytest.mark.parametrize(("rows", "frames"), [(1, 1), (1, 13), (3, 40)])
@pytest.mark.parametrize("layout", ["float32", "tf32"])
def test_samples(layout: Any, rows: int, frames: int) -> None:
    """As near to float64 as the plain decoder, or up to 1.5 times as far; in TF32 within its rounding."""
    built, given = codec(), codes(rows, frames)
    exact = Dac(built.config).double().to(DEVICE)
    exact.load_state_dict(built.state_dict())
    truth, built.precision = exact.decode_whole(given), layout
    own, plain = FusedDac(built)(given), built.decode_whole(given)
    assert own.shape == plain.shape
    assert 0 < (own - truth).norm() < max(1.5 * (plain - truth).norm(), tf32_error(built, layout, truth))
    if layout == "float32":
        mine, theirs, right = (one.cpu().numpy() for one in (own, plain, truth))
        assert_within(mine, theirs, right, f"{rows} of {frames} frames")


@torch.inference_mode()
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 3, 1, 7), (2, 5, 1, 1100), (3, 1, 1, 9), (2, 6, 1, 1)], ids=str)
def test_sums(shape: tuple[int, ...], layout: str) -> None:
    """With a skip and without; the sum takes the place of x."""
    random = torch.Generator().manual_seed(2)
    x, skip = (torch.randn(shape, generator=random).to(DEVICE) for _ in range(2))
    x, skip = (one.contiguous(memory_format=LAYOUTS[layout]) for one in (x, skip))
    bias, snake = torch.randn(shape[1], generator=random).to(DEVICE), Snake1d(shape[1]).to(DEVICE)
    snake.alpha.data = (torch.rand(1, shape[1], 1, generator=random) + 0.1).to(DEVICE)
    whole = x + bias[:, None, None]
    close = {"rtol": 0, "atol": 1e-5}
    torch.testing.assert_close(activated(x, bias, snake, None), snake(whole[:, :, 0])[:, :, None], **close)
    expected = skip + whole
    made, kept = summed(x, bias, snake, skip)
    assert kept is x
    torch.testing.assert_close(kept, expected, rtol=0, atol=0)
    torch.testing.assert_close(made, snake(expected[:, :, 0])[:, :, None], **close)


def test_networks_that_it_leaves_to_the_plain_decoder() -> None:
    built, given = codec().double(), codes(1, 5)
    torch.testing.assert_close(FusedDac(built)(given), built.decode_whole(given), rtol=0, atol=0)
