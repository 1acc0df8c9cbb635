"""Checks of MetaVoice's quant.json and quant.safetensors: the original's own int8 and int4 numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from converters.files.dtypes import narrow, widen
from converters.files.readers import SafetensorsCheckpoint
from converters.rules.original_quant import (
    AffineGroups,
    Int8Rows,
    int4_groups,
    int8_rows,
    mlx_groups,
    mlx_rows,
)
from tests.golden.cases import existing


class WideVectors:
    """tests.golden.cases.Vectors for files with bfloat16, which it reads as float32."""

    def __init__(self, file: Path):
        self.file = existing(file)
        self.opened = SafetensorsCheckpoint([file])
        self.unread = set(self.opened.shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        assert name in self.opened.shapes, f"{self.file}: tensor {name!r} is missing"
        self.unread.discard(name)
        return self.opened.read(name)

    def assert_all_read(self) -> None:
        assert not self.unread, f"{self.file}: never compared: {', '.join(sorted(self.unread))}"


def int8_product(x: np.ndarray, weight: Int8Rows) -> np.ndarray:
    """x · weightᵀ as in upstream's layer: scales are rounded to bfloat16. (n, in) → (n, out)."""
    return (x @ weight.codes.T.astype(np.float32)) * widen(narrow(weight.scales, "BF16"), "BF16")


def check_quantised(folder: Path) -> None:
    """Codes, scales and zeros exactly; products to float32's rounding."""
    vectors = WideVectors(folder / "quant.safetensors")
    for number, case in enumerate(json.loads(existing(folder / "quant.json").read_text())):
        weight, x = vectors[f"{number}.w"], vectors[f"{number}.x"]
        group, given = case["group"], case["settings"]
        assert weight.shape == (case["out"], case["inp"])
        assert given["int4"]["group"] == group
        assert not weight[given["zero_rows"]].any()

        rows = int8_rows(weight)
        np.testing.assert_array_equal(rows.codes, vectors[f"{number}.int8"], err_msg=f"{number}.int8")
        np.testing.assert_array_equal(rows.scales, vectors[f"{number}.int8_scales"])
        golden = vectors[f"{number}.int8_y"]
        terms = np.abs(x) @ np.abs(rows.codes.T.astype(np.float64)) * rows.scales
        error = np.abs(int8_product(x, rows) - golden)  # the same terms, added in another order
        assert (error <= np.sqrt(weight.shape[1]) * np.finfo(np.float32).eps * terms).all(), (
            f"{number}.int8_y"
        )
        check_int8_bridge(mlx_rows(weight, group), group, x, golden)

        groups = int4_groups(weight, group)
        for name, own in (
            ("int4", groups.codes),
            ("int4_scales", groups.scales),
            ("int4_zeros", groups.zeros),
            ("int4_scales_and_zeros", np.stack([groups.scales, groups.zeros], axis=-1).swapaxes(0, 1)),
            ("int4_dequant", groups.dequantize()),
        ):
            np.testing.assert_array_equal(own, vectors[f"{number}.{name}"], err_msg=f"{number}.{name}")
        check_bridge(weight, group, vectors[f"{number}.int4_dequant"])
    vectors.assert_all_read()


def check_int8_bridge(affine: AffineGroups, group: int, x: np.ndarray, golden: np.ndarray) -> None:
    """Compare MLX's product of the bridged numbers with the original's, within float32's rounding of sums."""
    import mlx.core as mx

    words, scales, biases = (mx.array(part) for part in affine)
    own = mx.quantized_matmul(mx.array(x), words, scales, biases, group_size=group, bits=8)
    largest = np.abs(x).astype(np.float64).sum(axis=1)[:, None] * (255 + 128) * affine.scales[:, 0]
    error = np.abs(np.array(own) - golden)
    assert (error <= np.sqrt(x.shape[1]) * np.finfo(np.float32).eps * largest).all()


def check_bridge(weight: np.ndarray, group: int, golden: np.ndarray) -> None:
    """Compare MLX's dequantization of the bridged numbers with the original's.

    They differ by the rounding of three bfloat16 operations at the size of the terms.
    """
    import mlx.core as mx

    affine = mlx_groups(weight, group)
    arrays = [mx.array(part) for part in affine]
    own = np.array(mx.dequantize(*arrays, group_size=group, bits=4))
    largest = np.abs(affine.biases) + 15 * affine.scales
    allowed = np.repeat(3 * 2.0**-9 * largest, group, axis=1)
    assert (np.abs(own - golden) <= allowed).all()
