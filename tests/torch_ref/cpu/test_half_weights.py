"""Products with packed float16 weights: torch's float32 products up to rounding."""

import numpy as np
import pytest
import torch

from tests.tolerance import assert_within
from torch_ref.cpu import half_weights

needs = pytest.mark.skipif(
    not half_weights.supported(), reason="needs torch with FBGEMM and a CPU that it supports"
)
RANDOM = np.random.default_rng(3)


def weights(rows: int, width: int) -> torch.Tensor:
    """Also numbers that float16 holds with fewer bits, and its largest."""
    numbers = RANDOM.normal(0, 0.1, (rows, width)).astype(np.float16)
    numbers[0, 0], numbers[0, -1] = 2**-24, 65504
    return torch.from_numpy(numbers.astype(np.float32))


@needs
@pytest.mark.parametrize("rows", [1, 2, 3, 16])
@pytest.mark.parametrize(("out", "width"), [(1, 1), (67, 44), (256, 257), (2080, 256)])
def test_products_are_those_of_float32(rows: int, out: int, width: int) -> None:
    weight, x = weights(out, width), torch.from_numpy(RANDOM.normal(0, 1, (rows, width)).astype(np.float32))
    assert half_weights.exact([weight])
    product = half_weights.packed(weight)
    found = product(x)
    truth = (x.double() @ weight.double().T).numpy()
    assert_within(found.numpy(), (x @ weight.T).numpy(), truth, "half weights")


@pytest.mark.parametrize("number", [1.0001, 2.0**-25, 65520.0, np.inf, np.nan])
def test_numbers_that_float16_does_not_hold(number: float) -> None:
    weight = weights(4, 5)
    assert half_weights.exact([weight, weight])
    other = weight.clone()
    other[2, 3] = number
    assert not half_weights.exact([weight, other])
