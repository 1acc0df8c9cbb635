"""MetaVoice's own quantised numbers. Vectors of the original are in tests/golden."""

from __future__ import annotations

import numpy as np
import pytest

from converters.dequantize import Quantization, dequantize
from converters.original_quant import int4_groups, int8_rows, mlx_groups, takes_int4
from tts_core.metavoice import FirstStageConfig, first_stage_parameter_shapes

WEIGHT = np.random.default_rng(0).normal(0, 0.05, (6, 256)).astype(np.float32)
FULL = FirstStageConfig(2048, 5632, 2, 16, 2048, 2562, 256, 1e-5, False)


def test_int8_is_off_by_half_a_step():
    rows = int8_rows(WEIGHT)
    assert rows.codes.dtype == np.int8
    off = np.abs(rows.codes * rows.scales[:, None] - WEIGHT)
    # the largest is 127.5 steps away from 0, and 128 is no code
    assert (off <= 0.5001 * rows.scales[:, None]).all()
    assert (np.abs(rows.codes.astype(int)).max(axis=1) >= 127).all()


@pytest.mark.parametrize("group", [32, 64, 128])
def test_mlx_gets_the_same_codes(group: int):
    """Unpacked by our own reader: codes and scales are those of the groups; zeros move to code 0."""
    own, affine = int4_groups(WEIGHT, group), mlx_groups(WEIGHT, group)
    how = Quantization("affine", group, 4)
    ones, zeros = np.ones_like(affine.scales), np.zeros_like(affine.scales)
    np.testing.assert_array_equal(dequantize(how, affine.words, ones, zeros), own.codes)
    np.testing.assert_array_equal(affine.scales, own.scales)
    values = dequantize(how, affine.words, affine.scales, affine.biases)
    step = np.repeat(own.scales, group, axis=1)
    assert (np.abs(values - own.dequantize()) <= 0.2 * step).all()
    assert (np.abs(values - WEIGHT) <= 0.8 * step).all()  # half a step, and bfloat16 at the edges


def test_what_int4_takes():
    shapes = first_stage_parameter_shapes(FULL)
    taken = {
        name.removeprefix("transformer.h.0.") for name, shape in shapes.items() if takes_int4(name, shape)
    }
    layer = {"attn.c_attn", "attn.c_proj", "mlp.swiglu.w1", "mlp.swiglu.w3", "mlp.c_proj"}
    assert {name for name in taken if ".h." not in name} == {
        "speaker_cond_pos.weight",
        *(f"{name}.weight" for name in layer),
    }
    assert not takes_int4("transformer.h.0.attn.c_proj.weight", (2044, 2048))
    assert not takes_int4("transformer.h.0.attn.c_proj.weight", (2048, 2000))
