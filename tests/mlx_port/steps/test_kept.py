"""A form of a network is built once, and again for other weights."""

import mlx.core as mx
from mlx import nn

from mlx_port.steps.concatenated import concatenated
from mlx_port.steps.forms import built_once


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 5)


def test_a_form_is_built_once_per_key_and_weights() -> None:
    network, built = Pair(), list[str]()

    def form(name: str) -> object:
        concatenated((network.first, network.second))  # replaces parameters by views
        built.append(name)
        return object()

    def found(name: str) -> object:
        return built_once(network, name, lambda: form(name))

    one = found("a")
    assert found("a") is one
    assert found("b") is not one
    assert found("a") is one
    assert built == ["a", "b"]
    network.second.weight = mx.zeros((5, 4))
    assert found("a") is not one
    assert built == ["a", "b", "a"]


def test_a_form_is_no_parameter() -> None:
    network = Pair()
    names = set(network.parameters())
    built_once(network, "a", lambda: mx.zeros(3))
    assert set(network.parameters()) == names
