"""Inverse STFT in torch: dtypes, gradients, and the limits of MPS. Values: tests/parity/layers."""

import pytest
import torch

import torch_ref.layers.istft as torch_istft
from torch_ref.limits import Backend, enforce


def test_half_precision_input_is_summed_in_float32():
    layer = torch_istft.InverseSTFT(16, 4)
    real, imag = torch.full((1, 9, 3), 0.1, dtype=torch.float16), torch.zeros(1, 9, 3, dtype=torch.float16)
    assert torch.equal(layer(real, imag), layer(real.float(), imag.float()))


def test_gradients_reach_both_parts():
    layer = torch_istft.InverseSTFT(8, 2)
    parts = [torch.randn(1, 5, 3, requires_grad=True) for _ in range(2)]
    layer(*parts).square().sum().backward()
    assert all(part.grad is not None and part.grad.abs().max() > 0 for part in parts)


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.13.0", "15.2"), ("2.15.0", "26.2")])
def test_no_rule_of_mps_is_broken(release, macos):
    layer, values = torch_istft.InverseSTFT(16, 4, padding="center"), torch.randn(1, 9, 5)
    with enforce(Backend("mps", release, macos)) as watch:
        layer(values, values)
    assert watch.calls > 0
