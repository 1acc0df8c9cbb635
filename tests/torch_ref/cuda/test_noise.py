"""Numbers drawn on the device are those drawn on the host, bit for bit."""

import numpy as np
import pytest
import torch

from tests.torch_ref.cuda.marks import DEVICE, kernel_marks
from torch_ref.cuda.noise import fill_uniform
from tts_core.nn.noise import HostNoise

pytestmark = kernel_marks()


@pytest.mark.parametrize("shape", [(3, 7), (9, 1028)], ids=str)
def test_fill_uniform(shape: tuple[int, ...]) -> None:
    """Seeds of 64 bits, steps that differ between texts, ticks around the ring's end; 0.5 inside a prompt."""
    seeds, steps = [0, 5, 2**63 + 11, 2**64 - 1], [0, -4, 2**33, 7]
    out = torch.full((4, len(seeds), *shape), torch.nan, device=DEVICE)
    bits = torch.from_numpy(np.array(seeds, np.uint64).view(np.int64)).to(DEVICE)
    fill_uniform(out, bits, torch.tensor(steps, device=DEVICE), 3, 3)
    for tick in (3, 4, 5):
        for text, (seed, first) in enumerate(zip(seeds, steps, strict=True)):
            step = first + tick
            expected = HostNoise(seed).uniform(step, shape) if step >= 0 else np.full(shape, 0.5, np.float32)
            np.testing.assert_array_equal(out[tick % 4, text].cpu().numpy(), expected)
    assert out[6 % 4].isnan().all()
