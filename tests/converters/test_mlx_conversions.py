"""MLX conversions by other programs: recognized by content, loaded as they are, or named as what they are."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.card import card_of
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from tests.golden.cases import DEFAULT
from tests.tiny.qwen3 import write_published
from tts_core.errors import CheckpointError, SpeechError

mx = pytest.importorskip("mlx.core", reason="MLX writes the folders")
SOURCES = DEFAULT / "mlx_community"
EMBEDDING, HEAD = "talker.model.text_embedding", "talker.codec_head"
Tensors = dict[str, Any]


def copied(
    folder: Path, name: str = "custom_8bit", change: Callable[[Tensors], object] | None = None
) -> Path:
    """Copy a folder that mlx-audio wrote. change: of its tensors."""
    shutil.copytree(SOURCES / name, folder, ignore=shutil.ignore_patterns("golden*", "info*"))
    if change is not None:
        file = folder / "model.safetensors"
        tensors = {key: mx.array(value) for key, value in mx.load(str(file)).items()}
        mx.eval(tensors)
        change(tensors)
        mx.save_safetensors(str(file), tensors, {"format": "mlx"})
        (folder / "model.safetensors.index.json").unlink()
    return folder


def edit(folder: Path, **changes: Any) -> None:
    file = folder / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def spoken(folder: Path) -> list[np.ndarray]:
    """Codes of both sides in float32, greedy."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import mlx_port
    import torch_ref

    given: dict[str, Any] = {"temperature": 0, "subtalker_temperature": 0, "max_frames": 6, "voice": "vivian"}
    sides = (mlx_port, {}), (torch_ref, {"device": "cpu"})
    return [
        side.load(folder, dtype="float32", **how).generate("An inn.", **given).codes for side, how in sides
    ]


def requantized(mode: str, size: int, bits: int) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        for name in [name for name in tensors if name.endswith(".scales")]:
            layer = name.removesuffix(".scales")
            arrays = [tensors.pop(f"{layer}.{each}") for each in ("weight", "scales", "biases")]
            made = mx.quantize(mx.dequantize(*arrays, 64, 8), size, bits, mode)
            tensors |= dict(zip((f"{layer}.weight", name, f"{layer}.biases"), made, strict=False))

    return change


@pytest.mark.parametrize(
    "how", [("affine", 32, 4), ("affine", 64, 6), ("mxfp4", 32, 4), ("mxfp8", 32, 8), ("nvfp4", 16, 4)]
)
def test_every_quantization_runs_as_it_is_stored(tmp_path: Path, how: tuple[str, int, int]) -> None:
    folder = copied(tmp_path / "model", change=requantized(*how))
    entry = Quantization(*how).to_dict()
    edit(folder, quantization=entry, quantization_config=entry)
    one, other = spoken(folder)
    np.testing.assert_array_equal(one, other)


def test_older_forms_load(tmp_path: Path) -> None:
    """Quantized embeddings, no mode, a stray file that no index names."""

    def change(tensors: Tensors) -> None:
        made = mx.quantize(tensors[f"{EMBEDDING}.weight"], 64, 8)
        tensors |= dict(
            zip((f"{EMBEDDING}.{each}" for each in ("weight", "scales", "biases")), made, strict=True)
        )

    folder = copied(tmp_path / "model", change=change)
    edit(folder, quantization={"group_size": 64, "bits": 8}, quantization_config=None)
    one, other = spoken(folder)
    np.testing.assert_array_equal(one, other)
    stray = copied(tmp_path / "stray")
    mx.save_safetensors(str(stray / "model-00001-of-00002.safetensors"), {f"{HEAD}.bias": mx.zeros(3)})
    assert open_published(stray, offline=True).parts["qwen3"].quantization


def test_axes_are_recognized_without_metadata(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = copied(tmp_path / "model", "base_bf16", lambda tensors: None)
    wide = {
        name: np.array(value.astype(mx.float32))
        for name, value in mx.load(str(folder / "model.safetensors")).items()
    }
    save_file(wide, folder / "model.safetensors", {"format": "pt"})
    assert len(load_file(folder / "model.safetensors")) == len(wide)
    found, known = (
        open_published(place, offline=True).parts["qwen3"] for place in (folder, SOURCES / "base_bf16")
    )
    for name in known.names():
        np.testing.assert_array_equal(found.read(name), known.read(name), name)


def without(name: str) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.pop(name)


REFUSED: dict[str, tuple[Callable[[Tensors], object] | None, dict[str, Any], str]] = {
    "no talker_config": (None, {"talker_config": None}, "its config.json is not the published one"),
    "no entry": (
        None,
        {"quantization": None, "quantization_config": None},
        "no quantization, but talker.* is there",
    ),
    "unknown mode": (None, {"quantization": {"mode": "x", "group_size": 64, "bits": 8}}, "'x' is unknown"),
    "unknown bits": (None, {"quantization": {"group_size": 64, "bits": 7}}, "affine takes .*, not 7"),
    "no scales": (without(f"{HEAD}.scales"), {}, f"unexpected: {HEAD}.biases"),
    "vocabulary": (None, {"text_token_map": "map.npy"}, "unknown text_token_map"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_named(tmp_path: Path, case: str) -> None:
    import mlx_port

    change, config, said = REFUSED[case]
    folder = copied(tmp_path / "model", change=change)
    edit(folder, **config)
    (folder / "README.md").write_text("---\nlibrary_name: mlx-audio\n---\n")
    for load in (open_published, mlx_port.load):
        with pytest.raises(CheckpointError, match=f"an MLX conversion of Qwen3-TTS by mlx-audio: .*{said}"):
            load(folder)


def test_a_model_that_is_not_ours_is_named(tmp_path: Path) -> None:
    import mlx_port

    folder = tmp_path / "models--mlx-community--Kokoro/snapshots/x"
    folder.mkdir(parents=True)
    mx.save_safetensors(
        str(folder / "kokoro.safetensors"), {"bert.weight": mx.zeros((4, 4))}, {"format": "mlx"}
    )
    (folder / "config.json").write_text('{"model_type": "kokoro"}')
    for load in (open_published, mlx_port.load):
        with pytest.raises(
            SpeechError, match="an MLX conversion of kokoro by mlx-community, which is not"
        ) as found:
            load(folder)
        assert "missing" not in str(found.value)


def test_dia_as_mlx_audio_has_it_loads_directly(tmp_path: Path) -> None:
    """Nari's names and axes in float16; `quantization` may be stated though nothing is quantized."""
    pytest.importorskip("torch", reason="the published pickles need it")
    import mlx_port
    import torch_ref
    from converters.files.pickles import TorchCheckpoint
    from tests.converters.folders import DAC_HF, V_V01

    folder = tmp_path / "Dia-1.6B-4bit"
    shutil.copytree(DAC_HF, folder / "codec")
    shutil.copy(V_V01 / "config.json", folder)
    edit(folder, model_type="dia", quantization={"group_size": 64, "bits": 4})
    [pickle] = V_V01.glob("*.pth")
    source = TorchCheckpoint(pickle)
    halves = {name: mx.array(source.read(name)).astype(mx.float16) for name in source.shapes}
    mx.save_safetensors(str(folder / "model.safetensors"), halves, {"format": "mlx"})
    found = open_published(folder, offline=True).parts["dia"]
    known = open_published(V_V01, codec=DAC_HF, offline=True).parts["dia"]
    assert (found.dtype, found.quantization, found.config) == ("float16", None, known.config)
    for name in known.names():
        np.testing.assert_allclose(found.read(name), known.read(name), rtol=2**-10, atol=1e-7, err_msg=name)
    sides = (mlx_port, {}), (torch_ref, {"device": "cpu"})
    one, other = (
        side.load(folder, dtype="float32", **how)
        .generate("[S1] An inn.", seed=1, max_frames=8, piece_seconds=None)
        .codes
        for side, how in sides
    )
    np.testing.assert_array_equal(one, other)


def test_a_converted_folder_is_one_of_qwens(tmp_path: Path) -> None:
    """config.json is Qwen's own with our keys, the codec's files are the published ones."""
    source = write_published(tmp_path / "source")
    (source / "speech_tokenizer/preprocessor_config.json").write_text("{}")
    how = Quantization("affine", 32, 8)
    convert(open_published(source, offline=True), tmp_path / "made", dtype="bfloat16", quantization=how)
    own, made = (json.loads((place / "config.json").read_text()) for place in (source, tmp_path / "made"))
    added = {name: made.pop(name) for name in made.keys() - own.keys()}
    assert made == own
    assert added.pop("quantization") == added.pop("quantization_config")
    assert added == {"weights_layout": "mlx", "format_version": 2, "dtype": "bfloat16"}
    codec = source / "speech_tokenizer"
    for file in codec.iterdir():
        twin = tmp_path / "made/speech_tokenizer" / file.name
        if file.suffix == ".json":
            assert json.loads(twin.read_text()) == json.loads(file.read_text())
        else:
            held, known = mx.load(str(twin)), mx.load(str(file))
            assert held.keys() == known.keys()
            assert all(mx.array_equal(held[name], known[name]) for name in known)
    assert not (tmp_path / "made/codec").exists()


def test_the_card_has_the_models_languages_and_says_what_was_measured(tmp_path: Path) -> None:
    published = open_published(write_published(tmp_path / "source"), offline=True)
    card = card_of(published, "bfloat16", Quantization("affine", 64, 8), "1")
    front, text = card.split("---\n")[1:]
    listed = front.partition("language:\n")[2].partition("tags:")[0].split()
    assert [each for each in listed if each != "-"] == [
        "zh",
        "en",
        "ja",
        "ko",
        "de",
        "fr",
        "ru",
        "pt",
        "es",
        "it",
    ]
    for tag in ("mlx", "mlx-audio", "text-to-speech", "qwen3_tts"):
        assert f"- {tag}\n" in front
    assert "license: apache-2.0" in front
    assert "embeddings: a step reads single rows of them" in text
    assert "Nothing was measured for this checkpoint" in text
