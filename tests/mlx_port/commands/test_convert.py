"""`mlx-port convert`, which is convert-weights, with the embedded voice, as a user runs it."""

import json
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from tests.mlx_port.commands.running import one_line, run
from tts_core.voice.embedded import CODEC, DIA

Usage = namedtuple("Usage", "total used free")
VOICE = ["--hf-path", DIA, "--codec", CODEC, "--mlx-path"]


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_the_folder_is_complete(capsys):
    code, out, err = run(capsys, "convert", *VOICE, "voice", "--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)["parts"]) == {"dia", "dac"}
    voice = Path("voice")
    assert "sha256" in (voice / "conversion.json").read_text()
    names = {str(path.relative_to(voice)) for path in voice.rglob("*") if path.is_file()}
    assert names >= {"config.json", "model.safetensors", "model.safetensors.index.json", "README.md"}
    assert names >= {"codec/config.json", "codec/model.safetensors"}
    assert not any(name.endswith((".py", ".pt", ".pth")) for name in names)


@pytest.mark.parametrize(
    ("code", "message", "arguments"),
    [
        (3, "did you mean dia-small?", ["--hf-path", "dia-smal", "--codec", CODEC]),
        (3, "DAC (the codec)", ["--hf-path", "dia-small"]),
        (5, "free", [*VOICE, "new"]),
    ],
)
def test_what_cannot_be_converted(capsys, monkeypatch, code, message, arguments):
    """One line, and nothing is written; the disk is full, which is known beforehand."""
    shutil.copytree(DIA, "dia-small")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 10**12 - 1000, 1000))
    one_line(capsys, code, message, "convert", *arguments)
    assert [path.name for path in Path().iterdir()] == ["dia-small"]


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
