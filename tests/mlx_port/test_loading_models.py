"""Folders of MARS5 and MetaVoice: their networks one by one, and one clear error for damaged ones."""

import shutil
from pathlib import Path
from typing import cast

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from converters.convert import convert
from converters.published import Published, open_published
from mlx_port.loading import open_networks, open_parts
from mlx_port.pipelines import load
from tests.tiny.mbd import CONFIG as MBD_CONFIG
from tests.tiny.mbd import published_content
from tests.tiny.mbd import write_published as write_mbd
from tests.tiny.networks import tiny
from tests.tiny.published_models import FOLDERS, SOURCES, edit, sources
from tests.tiny.record import record_again
from tts_core.errors import CheckpointError, NotFoundError, UsageError

pytest.importorskip("torch", reason="the published pickles need torch")
MODELS = list(SOURCES)
HALVES = {
    "mars5": lambda name: "norm" in name or name == "pos_embedding.alpha",
    "mars5_nar": lambda name: "norm" in name or name.endswith("pos_embedding.alpha") or is_head_norm(name),
    "metavoice": lambda name: False,
}  # kinds that take the requested dtype → their tensors that stay float32


def is_head_norm(name: str) -> bool:
    return name.startswith("residual_decoder.") and name.split(".")[2] == "0"


@pytest.fixture(scope="module")
def published() -> dict[str, Published]:
    return {model: open_published(sources(model)) for model in MODELS}


@pytest.fixture(scope="module")
def converted(published: dict[str, Published], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    for model, opened in published.items():
        convert(opened, root / model, dtype="float32")
    return {model: root / model for model in MODELS}


def tensors(network: nn.Module) -> dict[str, mx.array]:
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(network.parameters())))


@pytest.mark.parametrize("model", MODELS)
def test_configurations_without_weights(published, converted, model):
    parts = open_parts(converted[model])
    assert parts.model == model
    assert parts.configs == {kind: part.config for kind, part in published[model].parts.items()}
    assert parts.documents == {kind: dict(part.documents) for kind, part in published[model].parts.items()}
    assert [parts.dtype_of(kind) for kind in parts.configs] == ["float32"] * len(parts.configs)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("model", MODELS)
def test_dtype(converted, model, dtype):
    """The large networks take the dtype, except fixed tensors; the others stay float32."""
    for kind, network in open_networks(converted[model], dtype=dtype).items():
        for name, value in tensors(network).items():
            stays = HALVES[kind](name) if kind in HALVES else True
            assert value.dtype == (mx.float32 if stays else getattr(mx, dtype)), (kind, name)


@pytest.mark.parametrize("model", MODELS)
def test_one_network_alone(published, tmp_path, model):
    """A part can be converted and loaded without the others."""
    for kind in SOURCES[model]:
        convert(open_published(SOURCES[model][kind], parts=[kind]), tmp_path / kind)
        [(found, network)] = open_networks(tmp_path / kind, kinds=[kind]).items()
        assert found == kind
        part = published[model].parts[kind]
        assert tensors(network).keys() == set(part.names())
    with pytest.raises(NotFoundError, match=r"without config\.json|no such folder"):
        load(tmp_path / list(SOURCES[model])[1])


DAMAGES = {
    "no text tokenizer": ("mars5", lambda f: (f / "texttok.model").unlink(), "texttok.model: a part of the"),
    "a tokenizer that is no text": (
        "mars5",
        lambda f: (f / "speechtok.model").write_bytes(b"\xff"),
        "speech",
    ),
    "another tokenizer": (
        "mars5",
        lambda f: shutil.copy(f / "speechtok.model", f / "texttok.model"),
        "texttok.model|tokenizers",
    ),
    "no NAR": ("mars5", lambda f: shutil.rmtree(f / "nar"), "nar: no such folder"),
    "heads that do not divide": (
        "mars5",
        lambda f: edit(f / "nar/config.json", lambda c: c.update(num_attention_heads=7)),
        "7 heads do not divide",
    ),
    "another part in its place": (
        "mars5",
        lambda f: (shutil.rmtree(f / "codec"), shutil.copytree(f / "vocoder", f / "codec")),
        "not converted ones",
    ),
    "no stage's tokenizer": (
        "metavoice",
        lambda f: (f / "second_stage/tokenizer.json").unlink(),
        "second_stage/tokenizer.json",
    ),
    "a tokenizer that is no JSON": (
        "metavoice",
        lambda f: (f / "tokenizer.json").write_text("{"),
        "JSONDecodeError|tokenizer",
    ),
    "another speaker width": (
        "metavoice",
        lambda f: edit(f / "config.json", lambda c: c.update(speaker_embedding_size=7)),
        "speaker vectors of 7, ",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_clear_error_before_weights_are_read(converted, tmp_path, monkeypatch, name):
    model, damage, message = DAMAGES[name]
    place = Path(shutil.copytree(converted[model], tmp_path / "copy"))
    damage(place)
    monkeypatch.setattr("mlx_port.loading._fill", lambda *_: pytest.fail("weights were read"))
    with pytest.raises((CheckpointError, NotFoundError), match=message) as caught:
        open_networks(place)
    assert "\n" not in str(caught.value)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_tensors_of_every_network_are_checked(converted, tmp_path, model):
    for kind in SOURCES[model]:
        place = tmp_path / kind
        shutil.copytree(converted[model], place)
        file = place / FOLDERS[kind] / "model.safetensors"
        weights = cast(dict[str, mx.array], mx.load(str(file)))
        mx.eval(list(weights.values()))
        lost = sorted(weights)[len(weights) // 2]
        weights["more"] = weights.pop(lost)
        mx.save_safetensors(str(file), weights, {"format": "mlx"})
        record_again(place)
        with pytest.raises(CheckpointError) as caught:
            open_networks(place, kinds=[kind])
        assert f"{lost} missing" in str(caught.value)
        assert "more unknown" in str(caught.value)


@pytest.mark.parametrize("model", MODELS)
def test_published_files_are_refused(model):
    for source in sources(model)[:1]:
        with pytest.raises(UsageError, match="is a file; give the folder that convert-weights wrote"):
            load(source)
        with pytest.raises((CheckpointError, NotFoundError), match="convert-weights"):
            load(source.parent)


@pytest.fixture(scope="module")
def bands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mbd")
    write_mbd(folder / "mbd_comp_8.pt", published_content(MBD_CONFIG, tiny("mbd").tensors))
    convert(open_published(folder, parts=["mbd"]), folder / "made")
    return folder / "made"


def test_a_band_that_is_not_whole_is_refused_when_the_network_is_opened(bands, tmp_path):
    place = Path(shutil.copytree(bands, tmp_path / "copy"))
    file = place / "mbd/model.safetensors"
    weights = cast(dict[str, mx.array], mx.load(str(file)))
    mx.eval(list(weights.values()))
    del weights["bands.1.unet.embedding.weight"]
    weights["bands.0.unet.encoders.0.conv.weight"] = weights["bands.0.unet.encoders.0.conv.weight"][:, :-1]
    mx.save_safetensors(str(file), weights, {"format": "mlx"})
    record_again(place)
    with pytest.raises(CheckpointError, match=r"bands\.0.* expected float .*; bands\.1.* missing"):
        open_networks(place, kinds=["mbd"])
