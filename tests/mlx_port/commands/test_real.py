"""The installed command with the embedded voice, in separate processes."""

import json
import shutil
import subprocess
import sys

import pytest

from tts_core.voice.embedded import CODEC, DIA

pytestmark = pytest.mark.rest

CONVERT = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "convert"]
COMMAND = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "generate"]


def speak(*arguments, folder, stdin=None):
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_reference_is_continued(tmp_path):
    """By a Dia of the embedded voice's weights that does not say whose voices it has."""
    dia, where = tmp_path / "dia", ["--codec", str(CODEC), "--mlx-path", "voice"]
    shutil.copytree(DIA, dia)
    config = json.loads((dia / "config.json").read_text())
    del config["own_speakers"]
    (dia / "config.json").write_text(json.dumps(config))
    subprocess.run([*CONVERT, "--hf-path", str(dia), *where], cwd=tmp_path, check=True, capture_output=True)
    first = speak("-t", "[S1] Hello there, you.", "--seed", "3", "-o", "a.wav", "--quiet", folder=tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    voice = ["--ref-audio", "a.wav", "--ref-text", "[S1] Hello there, you."]
    flags = ["--max-seconds", "0.2", "--seed", "3", "-o", "b.flac"]
    second = speak("--model", "voice", "-t", "Goodbye.", *voice, *flags, folder=tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("b.flac: 0.2")
    assert "real time (RTF " in second.stdout


def test_it_works_offline_from_one_converted_folder(tmp_path, monkeypatch):
    """Without a home folder; HF_HUB_OFFLINE is set for all tests."""
    where = ["--hf-path", str(DIA), "--codec", str(CODEC), "--mlx-path", "voice"]
    subprocess.run([*CONVERT, *where], cwd=tmp_path, check=True, capture_output=True)
    for variable in ("XDG_CACHE_HOME", "HOME", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    flags = ["--model", "voice", "-t", "Hello.", "--seed", "3", "--max-seconds", "0.2"]
    assert speak(*flags, folder=tmp_path).returncode == 0
    written = [path.name for path in (tmp_path / "nothing").rglob("*") if path.is_file()]
    assert not [name for name in written if not name.startswith("blas-")]  # unless one is preloaded
