"""The bound, choices and losses by which `mlx-port verify` judges."""

import math
import re

import mlx.core as mx
import numpy as np
import pytest

from converters.files.dtypes import narrow, stored_type, widen
from converters.rules.dequantize import BITS, Quantization, dequantize
from mlx_port.commands.verify.conversion import (
    ROUNDING,
    SMALLEST_STEP,
    TensorClass,
    group_error,
    teacher_forced,
)
from mlx_port.commands.verify.html import HEIGHT, TOP, page
from mlx_port.commands.verify.measure import EPS, LayerRow, compare_choices, distances, measure
from mlx_port.commands.verify.report import Report
from mlx_port.loading import DTYPES
from tests import tolerance
from tts_core.files.header import ITEM_SIZES


def row(truth, torch, mlx, dtype="float32", judged=True):
    return measure("dia", "layer", dtype, [truth], [torch], [mlx], judged)


def test_the_bound_is_that_of_the_tests():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(100)
    torch, mlx = ((truth + 1e-6 * rng.standard_normal(100)).astype(np.float32) for _ in range(2))
    found = row(truth, torch, mlx)
    assert found.bound == pytest.approx(tolerance.bound(torch, truth), rel=1e-12)
    assert found.error == tolerance.error(mlx, truth)
    assert found.passed
    assert not row(truth, torch, mlx + np.float32(2e-4)).passed


def test_exact_layers_have_four_units_in_the_last_place():
    truth = np.array([1.0, -0.5])
    found = row(truth, truth.astype(np.float32), truth.astype(np.float32))
    assert (found.error, found.ratio, found.snr_db) == (0, 1, math.inf)
    assert found.bound == 4 * 2.0**-23
    assert row(truth, truth, truth + 3e-7).passed
    assert not row(truth, truth, truth + 6e-7).passed


def test_not_a_number_fails_even_without_a_verdict():
    truth = np.array([1.0, 2.0])
    assert not row(truth, truth, np.array([1.0, np.nan])).passed
    assert not row(truth, truth, np.array([1.0, np.inf]), judged=False).passed
    assert not row(truth, np.array([1.0, np.nan]), np.array([1.0, np.nan])).passed
    assert row(truth, truth, truth + 1, judged=False).passed


def test_a_choice_within_rounding_is_a_near_tie_and_told():
    costs = np.array([[1.0, 1.0 + 1e-6, 3.0], [2.0, 1.0, 5.0], [7.0, 6.0, 1.0]])
    torch = costs + 1e-6 * np.sign(np.arange(9).reshape(3, 3) - 4)
    found = compare_choices("codec", "q", "float32", costs, torch, np.array([1, 1, 2]), True)
    assert (found.total, found.equal, found.wrong, found.passed) == (3, 2, (), True)
    assert found.near_ties == pytest.approx((1e-6,))
    found = compare_choices("codec", "q", "float32", costs, torch, np.array([2, 1, 2]), True)
    assert (found.near_ties, found.wrong, found.passed) == ((), (2.0,), False)


def test_distances_choose_the_nearest_direction_or_point():
    rng = np.random.default_rng(1)
    encodings, codebook = rng.standard_normal((2, 3, 5)), rng.standard_normal((7, 3))
    vectors = encodings.swapaxes(1, 2)
    units, entries = (each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (vectors, codebook))
    directions = ((units[:, :, None] - entries) ** 2).sum(-1)
    points = ((vectors[:, :, None] - codebook) ** 2).sum(-1)
    np.testing.assert_allclose(distances(encodings, codebook, "directions"), directions, atol=1e-14)
    np.testing.assert_allclose(distances(encodings, codebook, "points"), points, atol=1e-13)
    assert distances(encodings.astype(np.float32), codebook, "directions").dtype == np.float32


def weights(kind: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((64, 256))
    shapes = {
        "normal": values,
        "small": values * 0.02,
        "tiny": values * 1e-4,
        "offset": 1 + 0.01 * values,
        "negative offset": -3 + values,
        "positive": np.abs(values),
        "constant": np.full((64, 256), 0.37),
        "outliers": values * np.where(rng.random((64, 256)) < 0.01, 50, 1),
        "zero": np.zeros((64, 256)),
    }
    return shapes[kind].astype(np.float32)


KINDS = ["normal", "small", "tiny", "offset", "negative offset", "positive", "constant", "outliers", "zero"]
FORMS = [("affine", bits) for bits in (2, 3, 4, 5, 6, 8)] + [("mxfp4", 4), ("mxfp8", 8), ("nvfp4", 4)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("mode", "bits"), FORMS)
def test_quantisation_stays_within_what_is_allowed(mode, bits, dtype):
    how = Quantization.of(mode, None, bits)
    for kind in KINDS:
        values = weights(kind)
        narrowed = mx.array(values).astype(DTYPES[dtype])
        stored = mx.quantize(narrowed, how.group_size, bits, mode)
        arrays = [np.array(one.astype(mx.float32) if one.dtype == narrowed.dtype else one) for one in stored]
        back = dequantize(how, *arrays)
        assert (np.abs(back - values) <= group_error(values, how, dtype)).all(), kind


@pytest.mark.parametrize(("mode", "bits"), [(mode, bits) for mode, bits in FORMS if bits > 2])
def test_swapped_rows_are_beyond_what_is_allowed(mode, bits):
    how = Quantization.of(mode, None, bits)
    values = weights("normal")
    assert (np.abs(values[::-1] - values) > group_error(values, how, "bfloat16")).any()


@pytest.mark.parametrize("bits", BITS["affine"])
@pytest.mark.parametrize("kind", ["normal", "small", "negative offset", "outliers"])
def test_affine_quantisation_is_bounded_at_its_own_step(bits, kind):
    """The bound is two steps of the group; a change of two and a half is beyond it."""
    how = Quantization.of("affine", None, bits)
    values = weights(kind)
    groups = values.astype(np.float64).reshape(-1, how.group_size)
    step = (groups.max(1) - groups.min(1)) / (2**bits - 1)
    moved = np.repeat(2.5 * step, how.group_size).reshape(values.shape)
    assert (moved > group_error(values, how, "float32")).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_constant_group_may_be_off_by_what_its_scale_and_bias_round(dtype):
    values = weights("constant")
    allowed = group_error(values, Quantization.of("affine"), dtype)
    assert (allowed < 2 * EPS[dtype] * np.abs(values)).all()
    assert (allowed > EPS[dtype] * np.abs(values)).all()


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32")])
def test_rounding_stays_within_what_is_allowed(dtype, code):
    rng = np.random.default_rng(3)
    values = (rng.standard_normal(10**5) * 10.0 ** rng.uniform(-9, 4, 10**5)).astype(np.float32)
    error = np.abs(widen(narrow(values, code), code).astype(np.float64) - values)
    assert (error <= ROUNDING[dtype] * np.abs(values) + SMALLEST_STEP[dtype] / 2).all()
    if dtype != "float32":
        assert (error > ROUNDING[dtype] / 2 * np.abs(values)).any()  # and close to it


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32")])
def test_the_smallest_step_is_the_smallest_number(dtype, code):
    """An error of half of it, which rounds to zero, is allowed; float32 cannot represent half of it."""
    ones = np.ones(1, f"u{ITEM_SIZES[code]}").view(stored_type(code))
    [smallest] = widen(ones, code)
    assert smallest == SMALLEST_STEP[dtype]
    assert dtype == "float32" or widen(narrow(np.array([smallest / 2]), code), code) == 0


def test_losses_by_hand():
    before = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))[None, :, None]  # (1, 2, 1, 3)
    after = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]))[None, :, None] + 7
    targets = np.array([[1], [-1]])
    loss = teacher_forced(before, after, targets)
    assert (loss.codes, loss.agreement, loss.targets) == (2, 0.5, 1)
    assert loss.divergence == pytest.approx((0.5 * math.log(2) - 0.25 * math.log(2)) / 2)
    assert loss.source_cross_entropy == pytest.approx(-math.log(0.25))
    assert loss.change == pytest.approx(math.log(0.25) - math.log(0.5))
    assert teacher_forced(before, after, targets - 2).targets == 0


def test_an_empty_report_can_be_written():
    report = Report("a", "b", "float32", None, 2, 0.1, 0)
    assert report.exact
    assert report.to_dict()["passed"]
    assert report.details().endswith("PASS: 0 layers within the bound, 0 tensors")


def test_the_short_text_says_what_its_verdict_covers():
    """Layers and tensors; not what quantization costs, which is told beside it."""
    how = {"mode": "affine", "bits": 4, "group_size": 64}
    report = Report("a", "b", "float32", how, 2, 0.1, 0)
    report.rows.append(row(np.ones(3), np.ones(3), np.ones(3)))
    report.tensors.append(TensorClass("norms", 1, 3, math.inf, 0.0))
    before = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))[None, :, None]
    after = np.log(np.array([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]))[None, :, None]
    report.losses["dia"] = teacher_forced(before, after, np.array([[1], [-1]]))
    first, *middle, last = report.text().splitlines()
    assert first == "a -> b (affine 4 bits, groups of 64, the rest float32); --verbose prints every layer"
    said = " ".join(middle)
    assert "Not covered by the verdict, dia: what affine 4 bits" in said
    assert "The likeliest code stays the same at 50 % of 2 places" in said
    assert last == (
        "PASS: 1 layer of MLX within the bound of PyTorch on the same numbers, "
        "1 tensor as converted from the source"
    )
    assert "norms" not in report.text()
    report.changed.append("model.safetensors")
    assert (
        report.text().splitlines()[-1]
        == "FAIL model.safetensors: changed since the conversion, by its sha256"
    )


def test_a_single_layer_and_tensor_are_no_plurals():
    """In the text, and in the lines for the model card."""
    report = Report("a", "b", "float32", None, 2, 0.1, 0)
    report.rows.append(row(np.ones(3), np.ones(3), np.ones(3)))
    report.tensors.append(TensorClass("norms", 1, 3, math.inf, 0.0))
    report.seconds_taken, report.peak_memory_bytes = 1.0, 1
    text = report.details()
    assert "norms: 1 tensor, 3 numbers, exact" in text
    assert "dia: 1 layer against the bound" in text
    assert text.endswith("PASS: 1 layer within the bound, 1 tensor")
    assert report.summary()[0].startswith("1 layer of MLX in float32")
    assert "64, 1 tensor with the source: all" in report.summary()[0]


def test_the_pages_grid_is_drawn_at_its_levels():
    """0 dB is the plot's lower edge and 120 dB its upper one; a bar of 40 dB ends at the line of 40 dB."""
    report = Report("a", "b", "float32", None, 2, 0.1, 0)
    report.rows += [LayerRow("dia", f"{db} dB", "float32", 1e-5, 1e-5, 1.0, 1e-3, db) for db in (40.0, 100.0)]
    text = page(report)
    grid = re.findall(r'y1="([\d.]+)" y2="([\d.]+)"/><text [^>]*>(\d+) dB<', text)
    expected = {level: f"{TOP + HEIGHT * (120 - level) / 120:.1f}" for level in (0, 40, 80, 120)}
    assert {int(level): start for start, _, level in grid} == expected
    assert all(start == stop for start, stop, _ in grid)
    bars = re.findall(r'<rect [^>]*y="([\d.]+)" [^>]*height="([\d.]+)"', text)
    assert [y for y, _ in bars] == [expected[40], f"{TOP + HEIGHT * 20 / 120:.1f}"]
