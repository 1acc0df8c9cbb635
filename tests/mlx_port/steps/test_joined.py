"""Joined layers compute what each layer does, and store nothing twice."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from mlx_port.steps.concatenated import Separate, concatenated

X = mx.random.normal((3, 64), key=mx.random.key(1))


def three(*, bias: bool = False, bits: tuple[int, ...] = ()) -> list:
    layers = [nn.Linear(64, rows, bias=bias) for rows in (32, 8, 24)]
    if not bits:
        return layers
    return [
        nn.QuantizedLinear.from_linear(layer, 32, width) for layer, width in zip(layers, bits, strict=True)
    ]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("bits", [(), (4, 4, 4), (8, 8, 8)], ids=str)
def test_outputs_are_those_of_each_layer(bias: bool, bits: tuple[int, ...]) -> None:
    layers = three(bias=bias, bits=bits)
    apart = [np.array(layer(X)) for layer in layers]
    whole = concatenated(layers)
    np.testing.assert_allclose(np.array(whole(X)), np.concatenate(apart, axis=1), rtol=1e-6, atol=1e-6)
    for layer, before in zip(layers, apart, strict=True):
        np.testing.assert_array_equal(np.array(layer(X)), before)  # views under their old names


def test_names_and_shapes_stay() -> None:
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.k_proj, self.v_proj = three(bits=(4, 4, 4))

    module = Attention()
    before = shapes(module)
    concatenated((module.q_proj, module.k_proj, module.v_proj))
    assert shapes(module) == before


def shapes(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    parameters: Any = tree_flatten(module.parameters())
    return [(name, value.shape) for name, value in parameters]


def test_nothing_is_stored_twice() -> None:
    layers = [nn.Linear(1024, 1024, bias=False) for _ in range(3)]
    mx.eval([layer.parameters() for layer in layers])
    before = mx.get_active_memory()
    concatenated(layers)
    assert mx.get_active_memory() - before < 1024 * 1024


def test_joined_layers_are_joined_once() -> None:
    layers = three()
    whole = concatenated(layers)
    assert concatenated(layers) is whole
    layers[1].weight = mx.ones_like(layers[1].weight)  # loaded anew
    again = concatenated(layers)
    assert again is not whole
    np.testing.assert_allclose(np.array(again(X))[:, 32], np.array(X.sum(axis=1)), rtol=1e-5)


@pytest.mark.parametrize(
    "other",
    [{"bits": 8}, {"group_size": 64}, {"group_size": 32, "mode": "mxfp4"}],
    ids=["bits", "groups", "mode"],
)
def test_layers_quantized_otherwise_stay_apart(other: dict[str, Any]) -> None:
    layers = three(bits=(4, 4, 4))
    how: dict[str, Any] = {"group_size": 32, "bits": 4} | other
    layers[1] = nn.QuantizedLinear.from_linear(nn.Linear(64, 8, bias=False), **how)
    apart = np.concatenate([np.array(layer(X)) for layer in layers], axis=1)
    whole = concatenated(layers)
    assert isinstance(whole, Separate)
    np.testing.assert_array_equal(np.array(whole(X)), apart)
