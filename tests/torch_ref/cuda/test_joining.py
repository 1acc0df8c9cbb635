"""Joined weights: one storage, the same numbers, parameters that learn and are saved as before."""

import torch
from torch import nn

from torch_ref.cuda.joining import joined


def test_joined() -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(4, rows, bias=False) for rows in (3, 1, 2)]
    before = [layer.weight.clone() for layer in layers]
    with torch.inference_mode():
        whole = joined(layers)
    torch.testing.assert_close(whole, torch.cat(before), rtol=0, atol=0)
    for layer, old in zip(layers, before, strict=True):
        torch.testing.assert_close(layer.weight, old, rtol=0, atol=0)
        assert layer.weight.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        layer(torch.ones(4)).sum().backward()
        assert layer.weight.grad is not None
    again = joined(layers)
    assert again.data_ptr() == whole.data_ptr()
    assert again.shape == (6, 4)
    layers[1].weight.data.fill_(7.0)
    assert (again[3] == 7).all()


def test_weights_that_are_side_by_side_by_chance_are_told_apart() -> None:
    whole = torch.randn(5, 4)
    first, second = nn.Linear(4, 2, bias=False), nn.Linear(4, 3, bias=False)
    first.weight, second.weight = nn.Parameter(whole[3:]), nn.Parameter(whole[:3])
    torch.testing.assert_close(joined([first, second]), torch.cat([whole[3:], whole[:3]]), rtol=0, atol=0)
