"""NumPy's dequantization against MLX's, for every mode, width and group."""

import numpy as np
import pytest

from converters.rules.dequantize import BITS, E2M1, E4M3, GROUP_SIZES, Quantization, dequantize, dequantized
from tts_core.errors import CheckpointError, UsageError

ALL = [
    Quantization(mode, group, bits)
    for mode in BITS
    for group in sorted(GROUP_SIZES[mode])
    for bits in sorted(BITS[mode])
]


@pytest.mark.parametrize("how", ALL, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_equal_to_mlx(how, dtype):
    mx = pytest.importorskip("mlx.core", reason="MLX is the oracle of dequantisation")
    weight = np.random.default_rng(how.bits).standard_normal((6, 256)).astype(np.float32)
    weight *= np.array([[1e-4], [0.02], [1], [30], [0], [-1]], np.float32)
    options = {"group_size": how.group_size, "bits": how.bits, "mode": how.mode}
    made = mx.quantize(mx.array(weight).astype(getattr(mx, dtype)), **options)
    # MLX would round scale · code to the scales' type; with wide scales both sides compute in float32
    made = [array.astype(mx.float32) if array.dtype in (mx.bfloat16, mx.float16) else array for array in made]
    expected = np.array(mx.dequantize(*made, dtype=mx.float32, **options))
    arrays = [np.array(array) for array in made]
    found = dequantize(how, *arrays)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    assert dequantized(how).shape(*[array.shape for array in arrays]) == found.shape


def test_every_scale_and_code_of_the_small_floats():
    mx = pytest.importorskip("mlx.core", reason="MLX is the oracle of dequantisation")
    codes = np.tile(np.arange(256, dtype=np.uint8), (256, 1)).view(np.uint32)
    scales = np.tile(np.arange(256, dtype=np.uint8)[:, None], (1, 32))
    for mode, bits, group in (("mxfp8", 8, 32), ("mxfp4", 4, 32), ("nvfp4", 4, 16)):
        scale = np.ascontiguousarray(scales[:, : 256 * 8 // bits // group])
        options = {"group_size": group, "bits": bits, "mode": mode, "dtype": mx.float32}
        expected = np.array(mx.dequantize(mx.array(codes), mx.array(scale), **options))
        np.testing.assert_array_equal(dequantize(Quantization(mode, group, bits), codes, scale), expected)


def test_tables_follow_the_standard():
    assert E2M1.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert E4M3[0x7E] == 448
    assert E4M3[0x01] == 2.0**-9
    assert np.isnan(E4M3[[0x7F, 0xFF]]).all()


def test_affine_means_8_bits_other_modes_have_their_own():
    found = {mode: (how.group_size, how.bits) for mode in BITS for how in [Quantization.of(mode)]}
    assert found == {"affine": (64, 8), "mxfp4": (32, 4), "mxfp8": (32, 8), "nvfp4": (16, 4)}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("affine", 16, None), "--q-group-size: affine takes 32, 64, 128, not 16"),
        (("mxfp4", None, 8), "--q-bits: mxfp4 takes 4, not 8"),
        (("int4", None, None), "--q-mode: 'int4' is unknown"),
    ],
)
def test_what_mlx_cannot_do_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        Quantization.of(*given)


def test_a_layer_may_have_an_entry_of_its_own():
    given = {
        "group_size": 64,
        "bits": 4,
        "mode": "affine",
        "head": {"group_size": 32, "bits": 8},
        "off": False,
    }
    assert Quantization.read(given, "head") == Quantization("affine", 32, 8)
    assert Quantization.read(given, "other") == Quantization("affine", 64, 4)
    with pytest.raises(CheckpointError, match="quantization of off"):
        Quantization.read(given, "off")


def test_shapes_that_do_not_belong_together():
    with pytest.raises(ValueError, match="do not match"):
        dequantized(Quantization("affine", 64, 4)).shape((4, 8), (4, 2), (4, 2))
