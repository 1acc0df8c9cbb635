"""Opening published checkpoints: every file recognized by its keys, missing parts named, no tensor read."""

import json
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest

from converters.convert import convert
from converters.files.pickles import TorchCheckpoint
from converters.files.readers import SafetensorsCheckpoint
from converters.published import open_published
from tests.converters.changed import fails
from tests.converters.folders import (
    DAC_HF,
    DAC_PTH,
    V_0626,
    V_0626_HF,
    V_V01,
    assert_same,
    read_all,
    write_safetensors,
)
from tts_core.dia.options import DEFAULTS_0626, DEFAULTS_V01
from tts_core.errors import CheckpointError, NotFoundError, UsageError

torch = pytest.importorskip("torch", reason="the published pickles need torch")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A complete published folder: Dia in transformers' layout, DAC in a subfolder."""
    shutil.copytree(V_0626_HF, tmp_path / "model")
    shutil.copytree(DAC_HF, tmp_path / "model/codec")
    for path in (tmp_path / "model").rglob("*"):
        path.chmod(0o755)
    return tmp_path / "model"


def shard(folder: Path) -> None:
    """Replace model.safetensors by two shards and their index."""
    tensors = read_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {name: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        write_safetensors(folder / file, {name: tensors[name] for name in names if places[name] == file})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def read_file(path: Path) -> dict[str, np.ndarray]:
    checkpoint = SafetensorsCheckpoint([path])
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


def nari_tensors() -> dict[str, np.ndarray]:
    checkpoint = TorchCheckpoint(V_0626 / "dia-v1.pth")
    return {name: checkpoint.read(name) for name in checkpoint.shapes}


def test_nari_and_transformers_layouts_are_the_same_model():
    nari = open_published(V_0626, codec=DAC_PTH)
    transformers = open_published(V_0626_HF, codec=DAC_HF)
    assert (nari.parts["dia"].layout, transformers.parts["dia"].layout) == ("dia_nari", "dia_transformers")
    assert (nari.parts["dac"].layout, transformers.parts["dac"].layout) == (
        "dac_descript",
        "dac_transformers",
    )
    assert nari.parts["dia"].config == transformers.parts["dia"].config
    assert nari.parts["dac"].config == transformers.parts["dac"].config
    assert_same(read_all(nari.parts["dia"]), read_all(transformers.parts["dia"]))
    folded, expected = read_all(nari.parts["dac"]), read_all(transformers.parts["dac"])
    for name, tensor in folded.items():
        np.testing.assert_allclose(tensor, expected[name], rtol=4e-7, atol=0, err_msg=name)
        assert tensor.flags.c_contiguous


def test_canonical_tensors_are_those_of_transformers_own_model():
    transformers = pytest.importorskip("transformers")
    model = transformers.DiaForConditionalGeneration.from_pretrained(V_0626_HF)
    expected = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert_same(read_all(open_published(V_0626, codec=DAC_HF).parts["dia"]), expected)


def test_nari_layout_as_safetensors_and_sharded(tmp_path):
    shutil.copy(V_0626 / "config.json", tmp_path / "config.json")
    write_safetensors(tmp_path / "model.safetensors", nari_tensors())
    expected = read_all(open_published(V_0626, codec=DAC_HF).parts["dia"])
    assert_same(read_all(open_published(tmp_path, codec=DAC_HF).parts["dia"]), expected)
    shard(tmp_path)
    opened = open_published(tmp_path, codec=DAC_HF).parts["dia"]
    assert len(opened.files) == 2
    assert_same(read_all(opened), expected)


def test_fused_qkv(tmp_path):
    shutil.copy(V_0626 / "config.json", tmp_path / "config.json")
    tensors = nari_tensors()
    for at in ("encoder.layers.0", "encoder.layers.1", "decoder.layers.0", "decoder.layers.1"):
        kernels = [tensors.pop(f"{at}.self_attention.{p}_proj.weight") for p in "qkv"]
        fused = np.concatenate([kernel.reshape(len(kernel), -1).T for kernel in kernels])
        tensors[f"{at}.self_attention.qkv.linear.weight"] = fused
    write_safetensors(tmp_path / "model.safetensors", tensors)
    expected = read_all(open_published(V_0626, codec=DAC_HF).parts["dia"])
    assert_same(read_all(open_published(tmp_path, codec=DAC_HF).parts["dia"]), expected)


@pytest.mark.parametrize("form", ["parametrized", "plain", "in safetensors"])
def test_other_forms_of_descripts_layout(tmp_path, form):
    content = torch.load(DAC_PTH, weights_only=True)
    expected = read_all(open_published(DAC_PTH, parts=["dac"]).parts["dac"])
    state = content["state_dict"]
    if form == "parametrized":
        ends = {
            "weight_g": "parametrizations.weight.original0",
            "weight_v": "parametrizations.weight.original1",
        }
        for name in list(state):
            at, _, end = name.rpartition(".")
            if end in ends:
                state[f"{at}.{ends[end]}"] = state.pop(name)
    elif form == "plain":
        for name in [name for name in state if name.endswith("weight_v")]:
            at = name.removesuffix("_v")
            state[at] = torch._weight_norm(state.pop(name), state.pop(f"{at}_g"), 0)
    if form == "in safetensors":
        write_safetensors(
            tmp_path / "model.safetensors", {name: tensor.numpy() for name, tensor in state.items()}
        )
        (tmp_path / "config.json").write_text(json.dumps(content["metadata"]["kwargs"]))
        opened = open_published(tmp_path, parts=["dac"]).parts["dac"]
    else:
        torch.save(content, tmp_path / "dac.pth")
        opened = open_published(tmp_path / "dac.pth", parts=["dac"]).parts["dac"]
    for name, tensor in read_all(opened).items():
        np.testing.assert_allclose(tensor, expected[name], rtol=4e-7, atol=0, err_msg=name)


def test_metadata_rules_over_a_config_beside_it(tmp_path):
    shutil.copy(DAC_PTH, tmp_path / "dac.pth")
    config = json.loads((DAC_HF / "config.json").read_text()) | {"sampling_rate": 16000, "n_codebooks": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    opened = open_published(tmp_path, parts=["dac"]).parts["dac"]
    assert (opened.config.sample_rate, opened.config.n_codebooks) == (44100, 9)


def test_a_model_that_lies_twice_in_a_folder(folder):
    shutil.copy(V_0626 / "dia-v1.pth", folder / "dia-v1.pth")
    shard(folder)
    opened = open_published(folder)
    assert [file.suffix for file in opened.parts["dia"].files] == [".safetensors"] * 2
    assert opened.ignored["dia-v1.pth"] == "all wanted parts are in safetensors files"


def test_dac_pickle_beside_dia_safetensors_and_pickle(folder):
    shutil.rmtree(folder / "codec")
    shutil.copy(V_0626 / "dia-v1.pth", folder / "a.pth")
    shutil.copy(DAC_PTH, folder / "named-like-nothing.pth")
    opened = open_published(folder)
    assert opened.parts["dac"].files == [folder / "named-like-nothing.pth"]
    assert opened.parts["dia"].layout == "dia_transformers"
    assert "already found in model.safetensors" in opened.ignored["a.pth"]


def test_a_pickle_takes_the_place_of_safetensors_without_their_config(folder):
    (folder / "codec/config.json").unlink()
    shutil.copy(DAC_PTH, folder / "dac.pth")
    assert open_published(folder).parts["dac"].files == [folder / "dac.pth"]


def test_parts_from_several_sources_and_one_shard_for_all(folder, tmp_path):
    assert open_published([DAC_PTH, V_0626 / "dia-v1.pth"]).parts["dia"].files == [V_0626 / "dia-v1.pth"]
    shard(folder)
    for name in ("model-00002-of-00002.safetensors", "model.safetensors.index.json"):
        assert len(open_published(folder / name, codec=DAC_HF).parts["dia"].files) == 2
    assert "both contain Dia" in fails(UsageError, [folder, V_0626_HF], codec=DAC_HF)
    assert f"{V_0626} contains nothing" in fails(UsageError, [folder, V_0626], codec=DAC_HF)


# missing parts


def test_all_missing_parts_stand_in_one_message(tmp_path):
    said = fails(NotFoundError, tmp_path)
    assert "weights of Dia and weights of DAC (the codec)" in said
    assert "--codec" not in said, "the model's own weights are missing, too"
    assert "missing: weights of Dia" in fails(NotFoundError, DAC_HF)


def test_missing_codec_is_called_dac_and_looked_for_on_the_hub(monkeypatch, tmp_path):
    asked = []

    def snapshot_download(repository, dry_run=False, **options):
        if dry_run:
            return []
        asked.append((repository, options["local_files_only"]))
        return str(shutil.copytree(DAC_HF, tmp_path / "snapshots/abc", dirs_exist_ok=True))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    opened = open_published(alone(tmp_path))
    assert asked == [("descript/dac_44khz", False)]
    assert (opened.parts["dac"].origin.repository, opened.parts["dac"].origin.commit) == (
        "descript/dac_44khz",
        "abc",
    )


def alone(folder):
    """Dia in a folder with nothing beside it."""
    return shutil.copytree(V_0626_HF, folder / "alone" / "dia")


def test_a_codec_beside_the_model_is_found(tmp_path):
    """Not in a converted folder; its fault, and that of other folders, is only that it is not used."""
    dia = alone(tmp_path)
    (dia.parent / "broken").mkdir()
    (dia.parent / "broken" / "model.safetensors").write_bytes(b"x")
    shutil.copytree(DAC_HF, dia.parent / "codec")
    opened = open_published(dia, offline=True)
    assert opened.parts["dac"].origin.path == dia.parent / "codec"
    assert {*opened.ignored} == {"golden.safetensors"}
    (dia.parent / "codec" / "conversion.json").write_text("{}")
    assert "missing: weights of DAC (the codec)" in fails(NotFoundError, dia, offline=True)


def test_messages_of_missing_parts_do_not_nest(tmp_path):
    said = fails(NotFoundError, alone(tmp_path), offline=True)
    assert "give the codec's folder, file or hub id with --codec" in said
    assert "(--" not in said
    assert said.count("--codec") == 1
    assert "; descript/dac_44khz is not in the hub's cache" in said


def test_config_is_a_part_too(folder):
    (folder / "config.json").unlink()
    assert f"config.json of Dia beside {folder / 'model.safetensors'}" in fails(NotFoundError, folder)


@pytest.mark.parametrize(
    "source",
    [
        "./no/such/dir",
        "no-such-dir",
        "/no/such",
        "../x",
        "x.pth",
        "~/x/y",
        "a/b/c",
        "C:\\models\\dia",
        "tests/x",
        "nobody/model.safetensors",
        "nobody/config.json",
    ],
)
def test_what_looks_like_a_path_never_goes_to_the_hub(monkeypatch, tmp_path, source):
    (tmp_path / "here/tests").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")  # with nothing beside it
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    assert "is not there" in fails(NotFoundError, source)


def test_missing_path_names_the_nearest(folder):
    assert f"did you mean {folder}?" in fails(NotFoundError, folder.with_name("modle"))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("GatedRepoError", "gated"),
        ("RepositoryNotFoundError", "not on the hub"),
        ("RevisionNotFoundError", "no such revision"),
        ("LocalEntryNotFoundError", "out of reach"),
        ("HFValidationError", "valid hub id"),
    ],
)
def test_hub_errors_take_one_line(monkeypatch, error, said):
    class Raised(getattr(huggingface_hub.errors, error)):
        def __init__(self):
            Exception.__init__(self, "many\nlines")

    def snapshot_download(*_, **__):
        raise Raised

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    found = fails(NotFoundError, "someone/model", revision="v9", codec=DAC_HF)
    assert found.startswith("--hf-path: someone/model at v9")
    assert said in found


# flags for Dia


@pytest.mark.parametrize("form", ["published", "converted"])
@pytest.mark.parametrize(("source", "has_it"), [(V_0626_HF, False), (V_V01, True)], ids=["0626", "v0.1"])
def test_cross_rope_changes_sampling_too(source, has_it, form, tmp_path):
    """The releases differ in both; a flag with the value that the file has changes nothing."""
    model = {"sources": source, "codec": DAC_HF}
    if form == "converted":
        convert(open_published(**model), tmp_path / "out")
        model = {"sources": tmp_path / "out"}
    for said in (None, False, True):
        config = open_published(**model, cross_rope=said).parts["dia"].config
        assert config.cross_rope == (has_it if said is None else said)
        assert config.generation == ("v0.1" if config.cross_rope else "0626")
        assert config.sampling == (DEFAULTS_V01 if config.cross_rope else DEFAULTS_0626)


def test_cross_rope_that_changes_nothing_keeps_sampling_of_one_s_own(tmp_path):
    convert(open_published(V_0626_HF, codec=DAC_HF), tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    config["sampling"]["temperature"] = 0.7
    (tmp_path / "out/config.json").write_text(json.dumps(config))
    for said in (None, False):
        assert (
            open_published(tmp_path / "out", cross_rope=said).parts["dia"].config.sampling.temperature == 0.7
        )


# half of the names


def test_a_file_of_which_less_than_half_is_known_is_of_no_model_known(folder):
    """With half of its names known the other half is named."""
    tensors = read_file(folder / "model.safetensors")
    for more, error, said in (
        (0, CheckpointError, "unexpected: x.0"),
        (1, NotFoundError, "model.safetensors: its tensors are of no known model"),
    ):
        strange = {f"x.{i}": np.ones(1, np.float32) for i in range(len(tensors) + more)}
        write_safetensors(folder / "model.safetensors", tensors | strange)
        assert said in fails(error, folder)


# checkpoints that do not fit


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not readable as JSON"),
        ("[]", "not a JSON object"),
        ('{"model_type": "bert"}', "not a Dia configuration"),
        ('{"weights_layout": "mlx", "format_version": 99}', "another version wrote"),
    ],
)
def test_configs_that_do_not_fit(folder, text, said):
    (folder / "config.json").write_text(text)
    found = fails(CheckpointError, folder)
    assert said in found
    assert "config.json" in found


def test_corrupt_file_in_a_folder_is_not_passed_over(folder):
    shutil.copy(V_0626 / "dia-v1.pth", folder / "dia-v1.pth")
    (folder / "model.safetensors").write_bytes(b"garbage")
    assert "model.safetensors" in fails(CheckpointError, folder)


def test_hidden_files_and_folders_are_passed_over(folder):
    """Such as macOS adds to other disks, and such as the hub's client keeps."""
    for place in ("._model.safetensors", ".cache/model.safetensors", ".cache/dia.pth"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_bytes(b"Mac OS X        ")
    found = open_published(folder)
    assert found.ignored.keys() <= {"golden.safetensors"}
    assert {file.name for part in found.parts.values() for file in part.files} == {"model.safetensors"}


def test_file_of_an_unknown_model(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", {"a": np.ones(2, np.float32)})
    assert "x.safetensors: its tensors are of no known model" in fails(
        NotFoundError, tmp_path / "x.safetensors"
    )
    (tmp_path / "x.txt").write_text("hello")
    assert "not a weights file" in fails(CheckpointError, tmp_path / "x.txt")
