"""The maps of Qwen3-TTS and its codec on small published folders; at full size: test_full_size.py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from converters import part as parts_of_models
from converters import tensors
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.tiny.networks import qwen3_config, tiny
from tests.tiny.qwen3 import write_published
from tts_core.errors import CheckpointError, SpeechError
from tts_core.qwen3.config import MODES


@pytest.mark.parametrize("mode", MODES)
def test_a_published_folder_is_read(tmp_path, mode):
    found = open_published(write_published(tmp_path / "qwen3", mode), offline=True)
    assert (found.model, list(found.parts), found.ignored) == ("qwen3", ["qwen3", "qwen3_codec"], {})
    found.check_fits()
    weights = {"qwen3": tiny(qwen3_config(mode)), "qwen3_codec": tiny("qwen3_codec")}
    for kind, part in found.parts.items():
        assert part.config == weights[kind].config
        assert part.names() == weights[kind].names()
        for name in part.names():
            np.testing.assert_allclose(part.read(name), weights[kind].read(name), rtol=1e-6, err_msg=name)
    assert list(found.parts["qwen3"].documents) == [
        *("vocab.json", "merges.txt", "tokenizer_config.json", "generation_config.json")
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("dtype", "how"),
    [("float32", None), ("bfloat16", None), ("float16", ("affine", 32, 8)), ("bfloat16", ("affine", 32, 4))],
)
def test_every_form_opens_on_mlx(tmp_path, mode, dtype, how):
    """The talker's layers and its head are quantized, and nothing else."""
    pytest.importorskip("mlx.core", reason="MLX quantizes and loads")
    from mlx.utils import tree_flatten

    from mlx_port.loading import open_networks

    quantization = None if how is None else Quantization(*how)
    published = open_published(write_published(tmp_path / "qwen3", mode), offline=True)
    report = convert(published, tmp_path / "made", dtype=dtype, quantization=quantization)
    networks = open_networks(tmp_path / "made")
    names: dict[str, Any] = dict(tree_flatten(networks["qwen3"].parameters()))
    quantized = [name.removesuffix(".scales") for name in names if name.endswith(".scales")]
    config = published.parts["qwen3"].config
    expected = 7 * config.talker.num_hidden_layers + 1  # the predictor stays as it is
    assert len(quantized) == report["parts"]["qwen3"]["quantized_layers"] == (expected if how else 0)
    assert all(name.startswith("talker.model.layers.") or name == "talker.codec_head" for name in quantized)
    wide = {name for name, tensor in names.items() if str(tensor.dtype) == "mlx.core.float32"}
    assert wide == {
        name
        for name in names
        if dtype == "float32" or name.endswith("norm.weight") or name.startswith("speaker_encoder.")
    }
    codec: dict[str, Any] = dict(tree_flatten(networks["qwen3_codec"].parameters()))
    assert {str(tensor.dtype) for tensor in codec.values()} == {"mlx.core.float32"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_large_tensors_in_parts_are_the_same(tmp_path, monkeypatch, dtype):
    """As the text embedding of full size: in pieces that end inside a row."""
    published = open_published(write_published(tmp_path / "qwen3", "base"), offline=True)
    known = convert(published, tmp_path / "whole", dtype=dtype)["written"]
    monkeypatch.setattr(tensors, "LARGEST", 100)
    monkeypatch.setattr(parts_of_models, "PIECE", 77)
    assert convert(published, tmp_path / "parts", dtype=dtype)["written"] == known
    folder = write_published(tmp_path / "damaged", "base")
    weights = load_file(folder / "model.safetensors")
    weights["talker.model.text_embedding.weight"][-1, -1] = np.nan if dtype == "bfloat16" else 1e6
    save_file(weights, folder / "model.safetensors")
    if dtype == "float32":
        return
    named = "contains NaN or infinite" if dtype == "bfloat16" else "does not fit in float16"
    with pytest.raises(CheckpointError, match=rf"text_embedding\.weight {named}"):
        convert(open_published(folder, offline=True), tmp_path / "no", dtype=dtype)
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("vocab.json", "vocab.json: a part of the model, but not there"),
        ("generation_config.json", "generation_config.json: a part of the model, but not there"),
        ("config.json", "config.json of Qwen3-TTS beside"),
        ("speech_tokenizer/config.json", r"config.json of Qwen3-TTS's codec beside"),
        ("speech_tokenizer/model.safetensors", "missing: weights of Qwen3-TTS's codec"),
    ],
)
def test_a_missing_file_is_named(tmp_path, file, named):
    folder = write_published(tmp_path / "qwen3")
    (folder / file).unlink()
    with pytest.raises(SpeechError, match=named):
        open_published(folder, offline=True)


def edit(file: Path, change: dict[str, Any], *at: str) -> None:
    content = json.loads(file.read_text())
    inner = content
    for name in at:
        inner = inner[name]
    inner |= change
    file.write_text(json.dumps(content))


TALKER, CODES = ("talker_config",), ("talker_config", "code_predictor_config")


@pytest.mark.parametrize(
    ("file", "at", "change", "named"),
    [
        (
            "config",
            (),
            {"tts_model_type": "singer"},
            "'singer': expected one of base, custom_voice, voice_design",
        ),
        (
            "config",
            (),
            {"tokenizer_type": "qwen3_tts_tokenizer_25hz"},
            "25hz', not 'qwen3_tts_tokenizer_12hz'; this variant is not supported",
        ),
        ("config", (), {"tts_model_typ": "base"}, "unknown tts_model_typ"),
        ("config", (), {"im_end_token_id": 260}, r"<\|im_end\|> is 258, the model has 260"),
        ("config", TALKER, {"use_sliding_window": True}, "use_sliding_window True, not False; this variant"),
        ("config", TALKER, {"codec_pad_id": 5000}, "codec id 5000; there are 1064"),
        ("config", TALKER, {"spk_is_dialect": {"eric": "klingon"}}, "the dialect of eric is no language"),
        ("config", TALKER, {"num_code_groups": 4}, "num_code_groups 5, not 4"),
        ("config", CODES, {"num_code_groups": 4}, "num_code_groups 4, not 5"),
        ("generation_config", (), {"top_k": "all"}, "top_k 'all' is no int"),
        ("generation_config", (), {"temperature": 0}, "temperature: 0 is not positive"),
    ],
)
def test_an_unusable_configuration_is_named(tmp_path, file, at, change, named):
    folder = write_published(tmp_path / "qwen3")
    edit(folder / f"{file}.json", change, *at)
    with pytest.raises(CheckpointError, match=named):
        open_published(folder, offline=True).check_fits()


def test_fields_of_any_configuration_are_ignored(tmp_path):
    folder = write_published(tmp_path / "qwen3")
    for at in ((), TALKER, CODES):
        edit(folder / "config.json", {"id2label": {}, "tie_word_embeddings": False, "num_beams": 1}, *at)
    assert open_published(folder, offline=True).parts["qwen3"].config == qwen3_config()
