"""The map of a converted folder whose layers are quantized in different ways."""

from typing import cast

from converters.maps import mlx
from converters.rules.transforms import Transform

ALL = {"group_size": 64, "bits": 4, "mode": "affine"}


def test_each_layer_has_the_quantization_of_its_own_entry():
    targets = {f"{name}.weight": (128, 256) for name in "abc"}
    stored = [f"{name}.{kind}" for name in "ab" for kind in ("weight", "scales", "biases")] + ["c.weight"]
    given = ALL | {"b": {"group_size": 32, "bits": 8, "mode": "affine"}, "c": False}
    made = mlx.rules(targets, stored, given)
    hows = [cast(Transform, rule.how) for rule in made]
    assert [how.name for how in hows] == ["dequantize affine 4", "dequantize affine 8", "same"]
    assert hows[1].shape((128, 64), (128, 8), (128, 8)) == (128, 256)
