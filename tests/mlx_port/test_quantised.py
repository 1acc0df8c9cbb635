"""Quantized folders on MLX: the quantized layers, speech, and distance from float32.

Correct loading of every form: tests/parity/dia/test_quantised.py.
"""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from benchmarks.quantised_parity import FORMS, TEXTS, compare, make, table, teacher_forced
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port import DiaPipeline
from tests.tiny.record import record_again
from tts_core.voice.embedded import CODEC, DIA

pytestmark = pytest.mark.rest

FRAMES = 20


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> DiaPipeline:
    return make("float32", tmp_path_factory.mktemp("plain") / "voice")[0]


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[DiaPipeline, int]:
    return make("8-bit affine", tmp_path_factory.mktemp("eight") / "voice")


def linears(voice: DiaPipeline) -> dict[str, nn.Module]:
    kinds = (nn.Linear, nn.QuantizedLinear)
    return {
        name: module for name, module in voice.engine.network.named_modules() if isinstance(module, kinds)
    }


def test_eight_bits_stay_near(plain: DiaPipeline, eight: tuple[DiaPipeline, int]) -> None:
    """One text of 20 frames: a smoke test of the table in docs/measured/accuracy.md."""
    spoken = plain.generate_codes(TEXTS[:1], seed=[0], max_frames=FRAMES)
    reference = [teacher_forced(plain.engine.network, TEXTS[0], spoken[0], 0)]
    # the same numbers force the same ids, so rows, steps and delays of the forced pass match the loop
    np.testing.assert_array_equal(reference[0].drawn, spoken[0])
    row = compare("8-bit affine", *eight, spoken, reference, max_frames=FRAMES)
    assert row.argmax > 0.9
    assert row.sampled > 0.9
    assert abs(row.loss_change) < 0.05
    assert row.megabytes < 66.3 / 2
    assert "8-bit affine" in table([row])[2]


def test_four_bits_cost_more(plain: DiaPipeline, tmp_path: Path) -> None:
    """The comparison above can fail: coarse weights show in every column."""
    spoken = plain.generate_codes(TEXTS[:1], seed=[0], max_frames=8)
    reference = [teacher_forced(plain.engine.network, TEXTS[0], spoken[0], 0)]
    row = compare("mxfp4", *make("mxfp4", tmp_path / "voice"), spoken, reference, max_frames=8)
    assert row.loss_change > 0.05
    assert row.argmax < 0.9


def test_layers_that_do_not_divide_stay_plain(tmp_path: Path) -> None:
    """Groups of 128 do not fit the feed-forwards' widths of 576 and 448: they stay plain, as exceptions."""
    folder = tmp_path / "voice"
    wide = Quantization.of("affine", 128, 8)
    convert(open_published([DIA], codec=CODEC, offline=True), folder, quantization=wide)
    recorded = json.loads((folder / "config.json").read_text())["quantization"]
    for name, layer in linears(DiaPipeline.load(folder)).items():
        plain = recorded.get(name) is False
        assert isinstance(layer, nn.Linear if plain else nn.QuantizedLinear), name
        assert plain == (width(layer) % 128 != 0), name


def width(layer: nn.Module) -> int:
    if isinstance(layer, nn.QuantizedLinear):
        return layer.weight.shape[1] * 32 // layer.bits
    assert isinstance(layer, nn.Linear)
    return layer.weight.shape[1]


def test_an_exception_may_have_its_own_bits(eight: tuple[DiaPipeline, int], tmp_path: Path) -> None:
    """As in mlx-lm's mixed recipes: an entry under the layer's path."""
    folder = tmp_path / "voice"
    convert(open_published([DIA], codec=CODEC, offline=True), folder, **FORMS["8-bit affine"])
    config = json.loads((folder / "config.json").read_text())
    for key in ("quantization", "quantization_config"):
        config[key]["logits_dense"] = {"group_size": 32, "bits": 4, "mode": "affine"}
    (folder / "config.json").write_text(json.dumps(config))
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    mx.eval(list(weights.values()))
    names = [f"logits_dense.{part}" for part in ("weight", "scales", "biases")]
    wide = mx.dequantize(*[weights[name] for name in names], group_size=64, bits=8)
    weights |= zip(names, mx.quantize(wide, group_size=32, bits=4), strict=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    record_again(folder)
    head = DiaPipeline.load(folder).engine.network.logits_dense
    assert isinstance(head, nn.QuantizedLinear)
    assert (head.group_size, head.bits) == (32, 4)


def test_dtype_of_the_rest(tmp_path: Path) -> None:
    """Activations take the scales' dtype; norms stay float32."""
    folder = tmp_path / "voice"
    quantization = FORMS["8-bit affine"]["quantization"]
    convert(
        open_published([DIA], codec=CODEC, offline=True), folder, dtype="bfloat16", quantization=quantization
    )
    voice = DiaPipeline.load(folder)
    head = voice.engine.network.logits_dense
    assert isinstance(head, nn.QuantizedLinear)
    assert head.scales is not None
    assert head.scales.dtype == mx.bfloat16
    assert voice.engine.network.model.decoder.norm.weight.dtype == mx.float32
    assert voice.generate_codes(["[S1] Hi."], seed=1, max_frames=1)[0].shape == (8, 1)
