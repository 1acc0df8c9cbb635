"""EnCodec's reflected edges on both sides, against NumPy's; all else: test_codecs.py."""

import mlx.core as mx
import numpy as np
import pytest
import torch

import mlx_port.codecs.encodec
import torch_ref.codecs.encodec
from tests.tiny.inputs import normal


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7, 8, 20])
def test_mirrored(length: int) -> None:
    """NumPy's reflection of a clip that zeros extend to the needed length, with the zeros cut off again."""
    x = normal(length, 2, 3, length)
    for left, right in ((0, 0), (6, 0), (0, 3), (6, 1), (2, 5)):
        zeros = max(0, max(left, right) + 1 - length) if left or right else 0
        padded = np.pad(np.pad(x, ((0, 0), (0, 0), (0, zeros))), ((0, 0), (0, 0), (left, right)), "reflect")
        expected = padded[:, :, : left + length + right]
        own = torch_ref.codecs.encodec.mirrored(torch.from_numpy(x), left, right).numpy()
        port = mlx_port.codecs.encodec.mirrored(mx.array(x.swapaxes(1, 2)), left, right)
        np.testing.assert_array_equal(own, expected)
        np.testing.assert_array_equal(np.array(port).swapaxes(1, 2), expected)
