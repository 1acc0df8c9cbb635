"""Joined weights: one storage, the same numbers, parameters that learn and are saved as before."""

import torch
from torch import nn

from torch_ref.cuda.concatenated import concatenated, stacked


def test_joined() -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(4, rows, bias=False) for rows in (3, 1, 2)]
    before = [layer.weight.clone() for layer in layers]
    with torch.inference_mode():
        whole = concatenated(layers)
    torch.testing.assert_close(whole, torch.cat(before), rtol=0, atol=0)
    for layer, old in zip(layers, before, strict=True):
        torch.testing.assert_close(layer.weight, old, rtol=0, atol=0)
        assert layer.weight.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        layer(torch.ones(4)).sum().backward()
        assert layer.weight.grad is not None
    again = concatenated(layers)
    assert again.data_ptr() == whole.data_ptr()
    assert again.shape == (6, 4)
    layers[1].weight.data.fill_(7.0)
    assert (again[3] == 7).all()


def test_stacked() -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(4, 3) for _ in range(2)]
    before = [layer.weight.clone() for layer in layers]
    whole = stacked(layers, 5)
    assert whole.shape == (2, 5, 4)
    assert not whole[:, 3:].any()
    for layer, old, part in zip(layers, before, whole, strict=True):
        torch.testing.assert_close(layer.weight, old, rtol=0, atol=0)
        torch.testing.assert_close(part[:3], old, rtol=0, atol=0)
        assert layer.weight.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    assert stacked(layers, 5).data_ptr() == whole.data_ptr()
    assert stacked(layers, 6).shape == (2, 6, 4)


def test_embeddings_are_joined_too() -> None:
    tables = [nn.Embedding(3, 2) for _ in range(2)]
    whole = concatenated(tables)
    assert torch.equal(tables[1](torch.tensor([2])), whole[5:])


def test_the_end_of_a_storage_is_no_room_for_padding() -> None:
    """The last weight ends its storage: rows after it would be read from elsewhere."""
    whole = torch.randn(2, 3, 4)
    layers = [nn.Linear(4, 2, bias=False) for _ in range(2)]
    for layer, part in zip(layers, whole.clone(), strict=True):
        layer.weight = nn.Parameter(part[:2])
    cut = whole.flatten(0, 1)[:5].clone()
    layers[0].weight, layers[1].weight = nn.Parameter(cut[:2]), nn.Parameter(cut[3:])
    assert stacked(layers, 3).shape == (2, 3, 4)
    assert not stacked(layers, 3)[:, 2].any()


def test_weights_that_are_side_by_side_by_chance_are_told_apart() -> None:
    whole = torch.randn(5, 4)
    first, second = nn.Linear(4, 2, bias=False), nn.Linear(4, 3, bias=False)
    first.weight, second.weight = nn.Parameter(whole[3:]), nn.Parameter(whole[:3])
    torch.testing.assert_close(
        concatenated([first, second]), torch.cat([whole[3:], whole[:3]]), rtol=0, atol=0
    )
