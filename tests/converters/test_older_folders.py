"""Folders of Qwen3-TTS in our own schema, as older versions wrote them, load on both sides as before."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.networks import tiny

OLDER = Path(__file__).parents[1] / "data/older"
NAMES = sorted(place.name for place in OLDER.iterdir() if place.is_dir())
HALF = 2.0**-8  # relative rounding of bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_read(name: str) -> None:
    found = open_published(OLDER / name, offline=True)
    found.check_fits()
    model, codec = found.parts["qwen3"], found.parts["qwen3_codec"]
    known = tiny(codec.config)
    for key in codec.names():
        np.testing.assert_allclose(codec.read(key), known.read(key), rtol=1e-6, err_msg=key)
    known = tiny(model.config)
    for key in model.names():
        own, expected = model.read(key), known.read(key)
        step = np.ptp(expected) / 255 if model.quantization and len(model.moves[key].sources) > 1 else 0
        np.testing.assert_allclose(own, expected, rtol=HALF, atol=2 * step, err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_both_sides_load_it_and_mlx_as_stored(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    import mlx_port
    import torch_ref
    from mlx_port.loading import open_parts

    assert bool(open_parts(OLDER / name, check=True).quantization_of("qwen3")) == ("custom" in name)
    given = {"voice": "vivian"} if "custom" in name else {"prompt": np.ones(32, np.float32)}
    one, other = (
        package.load(OLDER / name, dtype="float32", **device).generate(
            "An inn.", seed=4, max_frames=6, **given
        )
        for package, device in ((mlx_port, {}), (torch_ref, {"device": "cpu"}))
    )
    np.testing.assert_array_equal(one.codes, other.codes)


def test_it_is_converted_again_in_the_same_form(tmp_path: Path) -> None:
    """Its published config.json is not known any more."""
    source = open_published(OLDER / "qwen3_custom_voice", offline=True)
    convert(source, tmp_path / "plain", dtype="float32")
    convert(open_published(tmp_path / "plain", offline=True), tmp_path / "made")
    config = json.loads((tmp_path / "made/config.json").read_text())
    assert config["model_type"] == "qwen3"
    assert not (tmp_path / "made/speech_tokenizer").exists()
    again = open_published(tmp_path / "made", offline=True)
    for kind, part in source.parts.items():
        for key in part.names():
            np.testing.assert_array_equal(again.parts[kind].read(key), part.read(key), key)


def test_force_replaces_it(tmp_path: Path) -> None:
    shutil.copytree(OLDER / "qwen3_base", tmp_path / "model")
    how = Quantization("affine", 32, 8)
    convert(
        open_published(OLDER / "qwen3_base", offline=True), tmp_path / "model", quantization=how, force=True
    )
    assert open_published(tmp_path / "model", offline=True).parts["qwen3"].quantization
