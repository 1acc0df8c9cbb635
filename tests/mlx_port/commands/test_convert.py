"""`mlx-port convert`, which is convert-weights, with the embedded voice, as a user runs it."""

import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from mlx_port.commands import main as cli
from tests.mlx_port.commands.running import run
from tts_core.voice.embedded import CODEC, DIA

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def voice(tmp_path_factory):
    """The embedded voice, once, converted."""
    folder = tmp_path_factory.mktemp("voice") / "voice"
    assert cli.run(["convert", "--hf-path", str(DIA), "--codec", str(CODEC), "--mlx-path", str(folder)]) == 0
    return folder


def convert(capsys, *arguments):
    return run(capsys, "convert", *arguments)


def refused(capsys, code, message, *arguments):
    """Require this exit code, one line, and no remaining files."""
    before = sorted(Path().iterdir())
    found, out, err = convert(capsys, *arguments)
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(Path().iterdir()) == before


def copy(name):
    """A copy of the embedded Dia's files."""
    shutil.copytree(DIA, name)
    os.chmod(name, 0o755)
    return Path(name)


def test_the_folder_is_complete(voice):
    manifest = json.loads((voice / "conversion.json").read_text())
    assert "sha256" in json.dumps(manifest)
    names = {str(path.relative_to(voice)) for path in voice.rglob("*") if path.is_file()}
    assert names >= {"config.json", "model.safetensors", "model.safetensors.index.json", "README.md"}
    assert names >= {"codec/config.json", "codec/model.safetensors"}
    assert not any(name.endswith((".py", ".pt", ".pth")) for name in names)


def test_a_dry_run_writes_nothing(capsys, tmp_path):
    code, out, _ = convert(capsys, "--hf-path", DIA, "--codec", CODEC, "--mlx-path", "new", "--dry-run")
    assert code == 0
    assert "dia_transformers" in out
    assert "dac_transformers" in out
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_refused_without_force(capsys, voice):
    shutil.copytree(voice, "mine")
    where = ["--hf-path", DIA, "--codec", CODEC, "--mlx-path", "mine"]
    refused(capsys, 2, "mine exists; give another name, or --force to replace it", *where)
    assert convert(capsys, *where, "--force")[0] == 0


def test_force_never_replaces_what_is_no_model(capsys):
    Path("letters").mkdir()
    Path("letters/dear.txt").write_text("keep me")
    refused(capsys, 2, "letters", "--hf-path", DIA, "--codec", CODEC, "--mlx-path", "letters", "--force")
    assert Path("letters/dear.txt").read_text() == "keep me"


def test_what_is_not_there(capsys):
    copy("dia-small")
    refused(capsys, 3, "did you mean dia-small?", "--hf-path", "dia-smal", "--codec", CODEC)
    refused(capsys, 3, "is not there", "--hf-path", "./no/such/dir", "--codec", CODEC)
    Path("empty").mkdir()
    refused(capsys, 3, "missing: weights of Dia", "--hf-path", "empty", "--codec", CODEC)


def test_a_missing_codec_is_called_by_its_name(capsys):
    refused(capsys, 3, "DAC (the codec)", "--hf-path", copy("dia"))


def test_no_arguments(capsys):
    refused(capsys, 2, "SRC: missing")


def test_corrupt_weights(capsys):
    file = copy("dia") / "model.safetensors"
    whole = file.read_bytes()
    for content in (os.urandom(5000), whole[:100], whole[: len(whole) // 2], b""):
        file.unlink()
        file.write_bytes(content)
        refused(capsys, 4, "model.safetensors", "--hf-path", "dia", "--codec", CODEC, "--mlx-path", "new")


def test_keys_are_strict_both_ways(capsys):
    file = copy("dia") / "model.safetensors"
    tensors = load_file(file)
    file.unlink()
    save_file({**tensors, "model.decoder.surprise.weight": np.zeros((2, 2), np.float32)}, file)
    refused(
        capsys, 4, "model.decoder.surprise.weight", "--hf-path", "dia", "--codec", CODEC, "--mlx-path", "new"
    )
    del tensors["model.decoder.norm.weight"]
    save_file(tensors, file)
    refused(capsys, 4, "model.decoder.norm.weight", "--hf-path", "dia", "--codec", CODEC, "--mlx-path", "new")


def test_a_full_disk_is_known_beforehand(capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - 1000, 1000))
    refused(capsys, 5, "free", "--hf-path", DIA, "--codec", CODEC, "--mlx-path", "new")


def test_json(capsys):
    code, out, err = convert(capsys, "--hf-path", DIA, "--codec", CODEC, "--mlx-path", "new", "--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)["parts"]) == {"dia", "codec"} or set(json.loads(out)["parts"]) == {
        "dia",
        "dac",
    }


def test_both_commands_are_the_same():
    """convert-weights and `mlx-port convert` print the same help, except for their names."""
    texts = []
    for code in (
        "from converters.cli import main; main(['--help'])",
        "from mlx_port.commands.main import run; run(['convert', '--help'])",
    ):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        texts.append(done.stdout.split("\n", 1)[1].replace("-h, --help", "--help"))
    assert [line.split() for line in texts[0].splitlines()] == [
        line.split() for line in texts[1].splitlines()
    ]
