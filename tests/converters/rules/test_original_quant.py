"""MetaVoice's own quantized numbers. Vectors of the original are in tests/golden."""

from __future__ import annotations

import numpy as np
import pytest

from converters import cli
from converters.files.dtypes import narrow, widen
from converters.files.readers import SafetensorsCheckpoint
from converters.published import open_published
from converters.rules.dequantize import Quantization, dequantize
from converters.rules.original_quant import GROUP_SIZE, int4_groups, int8_rows, mlx_groups, mlx_rows
from tests.converters.folders import DAC_HF, V_0626_HF
from tests.tiny.published_models import FIRST, sources
from tts_core.command import runner
from tts_core.metavoice.config import FirstStageConfig, first_stage_parameter_shapes, is_quantisable

WEIGHT = np.random.default_rng(0).normal(0, 0.05, (6, 256)).astype(np.float32)
METAVOICE = [each for file in sources("metavoice") for each in ("--hf-path", file)]
FULL = FirstStageConfig(2048, 5632, 2, 16, 2048, 2562, 256, 1e-5, False)


def test_int8_is_off_by_half_a_step():
    rows = int8_rows(WEIGHT)
    assert rows.codes.dtype == np.int8
    off = np.abs(rows.codes * rows.scales[:, None] - WEIGHT)
    # the largest is 127.5 steps from 0, and 128 is not a code
    assert (off <= 0.5001 * rows.scales[:, None]).all()
    assert (np.abs(rows.codes.astype(int)).max(axis=1) >= 127).all()


@pytest.mark.parametrize("group", [32, 64, 128])
def test_mlx_gets_the_same_codes(group: int):
    """Our reader unpacks the same codes and scales; zeros move to code 0."""
    own, affine = int4_groups(WEIGHT, group), mlx_groups(WEIGHT, group)
    how = Quantization("affine", group, 4)
    ones, zeros = np.ones_like(affine.scales), np.zeros_like(affine.scales)
    np.testing.assert_array_equal(dequantize(how, affine.words, ones, zeros), own.codes)
    np.testing.assert_array_equal(affine.scales, own.scales)
    values = dequantize(how, affine.words, affine.scales, affine.biases)
    step = np.repeat(own.scales, group, axis=1)
    assert (np.abs(values - own.dequantize()) <= 0.2 * step).all()
    assert (np.abs(values - WEIGHT) <= 0.8 * step).all()  # half a step, and bfloat16 at the edges


@pytest.mark.parametrize("group", [32, 64, 128])
def test_int8_in_mlx_form_is_exact(group: int):
    own, affine = int8_rows(WEIGHT), mlx_rows(WEIGHT, group)
    values = dequantize(Quantization("affine", group, 8), affine.words, affine.scales, affine.biases)
    scales = affine.scales[:, :1]
    np.testing.assert_array_equal(values, own.codes * scales)
    np.testing.assert_allclose(scales[:, 0], own.scales, rtol=2.0**-8)


def run(*arguments: object) -> int:
    return runner.run(cli.convert_weights, [str(argument) for argument in arguments], debug=False)


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("mode", "bits", "made"), [("int8", 8, mlx_rows), ("int4", 4, mlx_groups)])
def test_the_command_writes_the_originals_numbers(mode, bits, made, dtype, tmp_path, capsys):
    """For the layers' linears, from weights in the requested dtype; all else as without -q."""
    part = open_published([FIRST], parts=["metavoice"]).parts["metavoice"]
    out, flags = tmp_path / "out", ("-q", "--q-mode", mode, "--q-group-size", 32, "--dtype", dtype)
    assert run(*METAVOICE, "--mlx-path", out, *flags) == 0
    assert f"affine, {bits} bits, groups of 32, the original's numbers" in capsys.readouterr().out
    written = SafetensorsCheckpoint([out / "model.safetensors"])
    code = {"float32": "F32", "bfloat16": "BF16"}[dtype]
    count = 0
    for name in part.names():
        values = widen(narrow(part.read(name), code), code)
        if not is_quantisable(name):
            np.testing.assert_array_equal(written.read(name), values, err_msg=name)
            continue
        layer, count = name.removesuffix(".weight"), count + 1
        affine = made(values, 32)
        np.testing.assert_array_equal(written.read(name), affine.words, err_msg=name)
        np.testing.assert_array_equal(written.read(f"{layer}.scales"), affine.scales, err_msg=name)
        np.testing.assert_array_equal(written.read(f"{layer}.biases"), affine.biases, err_msg=name)
    assert count == 5 * part.config.num_hidden_layers


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--hf-path", V_0626_HF, "--codec", DAC_HF, "--q-mode", "int4"], "MetaVoice's own"),
        (["--hf-path", FIRST, "--q-mode", "int4", "--q-bits", "8"], "--q-bits: int4 takes 4, not 8"),
        (["--hf-path", FIRST, "--q-mode", "int8", "--q-group-size", "48"], "takes 32, 64, 128, not 48"),
        ([*METAVOICE, "--q-mode", "int8", "--dtype", "float16"], "choose --dtype bfloat16 or float32"),
    ],
    ids=["Dia", "bits", "group", "float16"],
)
def test_where_there_are_no_such_numbers(flags, said, tmp_path, capsys):
    assert run(*flags, "-q", "--mlx-path", tmp_path / "out") == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(not FIRST.is_file(), reason=f"{FIRST} is missing")
@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_a_float16_source_needs_a_dtype(mode, tmp_path, capsys):
    """Without --dtype the folder would take the source's dtype, but the scales are bfloat16 numbers."""
    torch = pytest.importorskip("torch", reason="torch writes the file")
    content = torch.load(FIRST, weights_only=True)
    content["model"] = {name: tensor.half() for name, tensor in content["model"].items()}
    torch.save(content, tmp_path / FIRST.name)
    others = [each for file in sources("metavoice")[1:] for each in ("--hf-path", file)]
    flags = [
        "--hf-path",
        tmp_path / FIRST.name,
        *others,
        "-q",
        "--q-mode",
        mode,
        "--q-group-size",
        32,
        "--dry-run",
    ]
    assert run(*flags) == 2
    assert "choose --dtype bfloat16 or float32, or affine" in capsys.readouterr().err
    for dtype in ("bfloat16", "float32"):
        assert run(*flags, "--dtype", dtype) == 0


def takes_int4(name: str, shape: tuple[int, ...], group_size: int = GROUP_SIZE) -> bool:
    """Check if upstream's int4 takes a tensor of the first stage, by canonical name and sizes.

    It takes linear layers whose rows divide by 8 and columns by the group: all except the head, with 2,562
    rows. Embeddings and norms stay plain. int8 takes every linear layer.
    """
    linear = name == "speaker_cond_pos.weight" or is_quantisable(name)
    return linear and shape[0] % 8 == 0 and shape[1] % group_size == 0


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
