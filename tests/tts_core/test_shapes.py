"""Shapes of tensors as a tree of modules."""

from types import SimpleNamespace

import pytest

from tts_core import models
from tts_core.shapes import TransposedKernel, attention, biased, mlx_axes, shapes, transposed, weight


def test_names_are_paths_of_the_tree():
    tree = {"a.b": [weight(2, 3), {"c": biased(4)}], "d": {}, "e": {"alpha": (1,)}}
    assert shapes(tree) == {
        "a.b.0.weight": (2, 3),
        "a.b.1.c.weight": (4,),
        "a.b.1.c.bias": (4,),
        "e.alpha": (1,),
    }


def test_key_heads_are_fewer_than_heads():
    sizes = SimpleNamespace(hidden_size=6, num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    rows = {"q_proj": (32, 6), "k_proj": (16, 6), "v_proj": (16, 6), "o_proj": (6, 32)}
    assert shapes(attention(sizes)) == {f"{name}.weight": shape for name, shape in rows.items()}


def test_mlx_has_channels_last():
    torch_shapes = shapes({"up": transposed(8, 4, 3), "conv": biased(4, 8, 3)})
    turned = {name: mlx_axes(shape) for name, shape in torch_shapes.items()}
    assert turned == {"up.weight": (1, 2, 0), "up.bias": None, "conv.weight": (0, 2, 1), "conv.bias": None}


@pytest.mark.parametrize("name", models.NAMES)
def test_kernels_have_the_axes_of_mlx_networks(name):
    """Every shape of a network of MLX, whose parameters are not computed before they are read."""
    utils = pytest.importorskip("mlx.utils", reason="MLX has the networks")
    [configs, *_] = models.MODELS[name].sizes.values()
    for kind, config in configs.items():
        told = models.network(kind).parameter_shapes(config)
        laid = {
            n: tuple(shape[axis] for axis in mlx_axes(shape) or range(len(shape)))
            for n, shape in told.items()
        }
        network = models.network_class("mlx_port", kind)(config)
        assert {n: array.shape for n, array in utils.tree_flatten(network.parameters())} == laid
        assert not any(isinstance(shape, TransposedKernel) and len(shape) != 3 for shape in told.values())
