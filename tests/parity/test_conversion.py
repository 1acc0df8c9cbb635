"""The golden checkpoints of MARS5 and MetaVoice through the real command: every number in its place."""

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx import nn
from mlx.utils import tree_flatten
from safetensors.torch import load_file

from converters import cli
from converters.convert import convert
from converters.published import open_published
from converters.rules.dequantize import Quantization
from mlx_port.loading import open_networks as open_mlx
from tests.converters.folders import files_of, write_safetensors
from tests.tiny.published_models import (
    AR,
    DOCUMENTS,
    ENCODEC,
    FIRST,
    FOLDERS,
    MARS5,
    METAVOICE,
    NAR,
    SECOND,
    SOURCES,
    SPEAKER,
    VOCOS,
    as_stored,
    header,
    pickled,
    sources,
    tensors,
)
from torch_ref.loading import open_networks as open_torch
from tts_core import models
from tts_core.command import runner
from tts_core.files.header import read_header

pytestmark = pytest.mark.golden
MODELS = list(SOURCES)


def run(*arguments: object) -> int:
    return runner.run(cli.convert_weights, [str(argument) for argument in arguments], debug=True)


def weights(folder: Path) -> dict[str, mx.array]:
    return cast(dict[str, mx.array], mx.load(str(folder / "model.safetensors")))


def parameters(network: nn.Module) -> dict[str, mx.array]:
    return dict(cast(list[tuple[str, mx.array]], tree_flatten(network.parameters())))


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Model → the folder that the command writes without flags."""
    root = tmp_path_factory.mktemp("golden")
    for model in MODELS:
        flags = [flag for source in sources(model) for flag in ("--hf-path", source)]
        assert run(*flags, "--mlx-path", root / model, "--offline") == 0
    return {model: root / model for model in MODELS}


@pytest.mark.parametrize("model", MODELS)
def test_the_folder_is_laid_out_as_agreed(converted, model):
    held = {str(file.relative_to(converted[model])) for file in converted[model].rglob("*") if file.is_file()}
    parts = [f"{FOLDERS[kind]}/" if FOLDERS[kind] else "" for kind in SOURCES[model]]
    names = ("config.json", "model.safetensors", "model.safetensors.index.json")
    assert held == {
        *(part + name for part in parts for name in names),
        *DOCUMENTS[model],
        *("README.md", "conversion.json"),
    }
    for kind in SOURCES[model]:
        config = json.loads((converted[model] / FOLDERS[kind] / "config.json").read_text())
        assert (config["model_type"], config["weights_layout"], config["format_version"]) == (kind, "mlx", 2)


@pytest.mark.parametrize("model", MODELS)
def test_mlx_reads_every_number_in_its_axis_order(converted, model):
    for kind in SOURCES[model]:
        expected = tensors(kind)
        stored = weights(converted[model] / FOLDERS[kind])
        assert stored.keys() == expected.keys(), kind
        for name, tensor in expected.items():
            found = np.array(stored[name].astype(mx.float32))
            wanted = as_stored(kind, name, tensor.astype(np.float32))
            # a folded weight may divide gain by norm first
            rounding = 2.0**-23 if kind == "encodec" and name.endswith("conv.weight") else 0.0
            np.testing.assert_allclose(found, wanted, rtol=rounding, atol=0, err_msg=name)
            dtype = mx.float16 if tensor.dtype == np.float16 else mx.float32
            assert stored[name].dtype == (
                mx.float32 if models.network(kind).stays_float32(name) else dtype
            ), name


@pytest.mark.parametrize("model", MODELS)
def test_both_sides_networks_hold_every_number(converted, model):
    on_torch = open_torch(sources(model), device="cpu", dtype="float32")
    on_mlx = open_mlx(converted[model], dtype="float32")
    assert list(on_torch) == list(on_mlx) == list(SOURCES[model])
    for kind, network in on_torch.items():
        expected = tensors(kind)
        state = dict(network.named_parameters())
        held = parameters(on_mlx[kind])
        assert state.keys() == held.keys() == expected.keys(), kind
        for name, tensor in expected.items():
            assert state[name].dtype == torch.float32
            value = state[name].numpy()
            # a unit in the last place, as above
            np.testing.assert_allclose(value, tensor.astype(np.float32), rtol=2.0**-23, atol=0, err_msg=name)
            np.testing.assert_array_equal(np.array(held[name]), as_stored(kind, name, value), err_msg=name)


def test_mars5_tokenizers_are_the_files_that_were_packed(converted):
    for name in DOCUMENTS["mars5"]:
        assert (converted["mars5"] / name).read_bytes() == (MARS5 / name).read_bytes()


def test_metavoice_tokenizers_keep_every_byte(converted):
    golden = json.loads((METAVOICE / "tokenizer.json").read_text())
    for name, stage in zip(DOCUMENTS["metavoice"], ("first_stage", "second_stage"), strict=True):
        made = json.loads((converted["metavoice"] / name).read_text())
        assert made["mergeable_ranks"] == golden["mergeable_ranks_b64"]
        assert made["special_tokens"] == golden["special_tokens"]
        assert (made["pat_str"], made["offset"]) == (golden["pat_str"], golden["settings"]["offset"][stage])
    raw = pickled(FIRST)["meta"]["tokenizer"]["mergeable_ranks"]
    assert {base64.b64decode(key): rank for key, rank in golden["mergeable_ranks_b64"].items()} == raw


def test_what_metavoice_leaves_behind_has_a_reason(converted):
    report = json.loads((converted["metavoice"] / "conversion.json").read_text())["parts"]
    dropped = report["metavoice_speaker_encoder"]["dropped"]
    assert dropped.keys() == {"similarity_weight", "similarity_bias", "optimizer_state", "step"}
    assert "optimizer" in dropped["optimizer_state"]
    assert report["metavoice"]["dropped"] == {}


def test_licenses_are_on_the_card_of_mars5_and_metavoice(converted):
    assert "\nlicense: agpl-3.0\n" in (converted["mars5"] / "README.md").read_text()
    card = (converted["metavoice"] / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in card
    assert "- Vocos (the vocoder): mit" in card
    assert "cc-by-nc" not in card


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_converting_again_changes_nothing(converted, tmp_path, model, dtype):
    if dtype is not None:
        convert(open_published(converted[model]), tmp_path / "first", dtype=dtype)
    first = converted[model] if dtype is None else tmp_path / "first"
    convert(open_published(first), tmp_path / "second")
    assert files_of(first) == files_of(tmp_path / "second")
    dtypes = {tensor.dtype for tensor in read_header(tmp_path / "second/codec/model.safetensors")[0].values()}
    assert dtypes == {"F32"}


def test_mars5_pickles_make_the_same_folder(converted, tmp_path):
    """torch's zip format with the published file's other entries, and its old format."""
    ar = tmp_path / "ar.pt"
    torch.save({"vocab": header(AR), "model": load_file(AR), "cfg": {"note": "ignored"}}, ar)
    torch.save(
        {"model": load_file(NAR), "vocab": header(NAR)},
        tmp_path / "nar.pt",
        _use_new_zipfile_serialization=False,
    )
    shutil.copy(NAR.with_suffix(".json"), tmp_path / "nar.json")
    torch.save(pickled(ENCODEC), tmp_path / "old.th", _use_new_zipfile_serialization=False)
    published = open_published([ar, tmp_path / "nar.pt", tmp_path / "old.th", VOCOS])
    assert published.parts["mars5"].dropped["cfg"] == "no part of the model"
    assert "tokenizers" in published.parts["mars5_nar"].dropped["vocab"]
    convert(published, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(converted["mars5"])


def test_metavoice_in_one_folder_with_and_without_the_mark_of_compilation(converted, tmp_path):
    """Laid out as its repository: all in one folder, with an unrelated config.json."""
    source = tmp_path / "source"
    source.mkdir()
    for file in (FIRST, SECOND, SPEAKER, ENCODEC):
        shutil.copy(file, source / file.name)
    content = pickled(FIRST)
    marked = any(name.startswith("_orig_mod.") for name in content["model"])
    mark, unmark = ("", "_orig_mod.") if marked else ("_orig_mod.", "")
    content["model"] = {mark + name.removeprefix(unmark): value for name, value in content["model"].items()}
    torch.save(content | {"optimizer": {"state": {0: torch.ones(3)}}}, source / FIRST.name)
    (source / "config.json").write_text('{"_name_or_path": "metavoice"}')
    for file in VOCOS.iterdir():
        shutil.copy(file, source / file.name)
    published = open_published(source)
    assert "optimizer" in published.parts["metavoice"].dropped["optimizer"]
    convert(published, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(converted["metavoice"])


def test_encodec_in_the_layout_of_transformers(tmp_path):
    """The same numbers in that layout; tests/golden has files of the original."""
    given = tmp_path / "model.safetensors"
    write_safetensors(given, tensors("encodec"))
    part = open_published(given, parts=["encodec"]).parts["encodec"]
    assert part.layout == "encodec_transformers"
    convert(open_published(given, parts=["encodec"]), tmp_path / "out")
    again = open_published(tmp_path / "out", parts=["encodec"]).parts["encodec"]
    for name in part.names():
        np.testing.assert_array_equal(again.read(name), part.read(name))


@pytest.mark.parametrize("model", MODELS)
def test_quantised_layers_are_mlxs_own_and_can_be_undone(tmp_path, model):
    how = Quantization.of("affine", 32, 8)
    published = open_published(sources(model))
    report = convert(published, tmp_path / "q", quantization=how)
    networks = open_mlx(tmp_path / "q")
    for kind, part in published.parts.items():
        names = [name for name in part.names() if models.network(kind).is_large(name)]
        even = [name for name in names if part.shape(name)[-1] % 32 == 0]
        assert report["parts"][kind]["quantized_layers"] == len(even)
        held = parameters(networks[kind])
        scales = {name.removesuffix(".scales") for name in held if name.endswith(".scales")}
        assert scales == {name.removesuffix(".weight") for name in even}
        for name in even[::5]:
            layer = name.removesuffix(".weight")
            values = mx.array(part.read(name)).astype(held[f"{layer}.scales"].dtype)
            for end, made in zip(("weight", "scales", "biases"), mx.quantize(values, 32, 8), strict=True):
                assert mx.array_equal(held[f"{layer}.{end}"], made).item(), name
    assert run("--hf-path", tmp_path / "q", "--mlx-path", tmp_path / "plain", "-d") == 0
    plain, quantised = open_published(tmp_path / "plain"), open_published(tmp_path / "q")
    for kind, part in plain.parts.items():
        assert part.quantization is None
        for name in part.names():
            expected = quantised.parts[kind].read(name)
            if part.dtype == "float16" and not part.stays_float32(name):
                expected = expected.astype(np.float16).astype(np.float32)
            np.testing.assert_array_equal(part.read(name), expected, err_msg=name)


def test_the_summary_of_mars5_and_metavoice_is_short(tmp_path, capsys):
    for model in MODELS:
        flags: list[Any] = [flag for source in sources(model) for flag in ("--hf-path", source)]
        assert run(*flags, "--dry-run", "--offline") == 0
        said = capsys.readouterr().out.splitlines()
        assert [line.partition(":")[0] for line in said if line[0] not in " w"] == list(SOURCES[model])
        assert len(said) < 15
        assert all(len(line) < 300 for line in said)
    assert os.listdir(tmp_path) == []
