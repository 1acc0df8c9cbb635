"""The installed command with the embedded voice, in separate processes."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tts_core.audio.files import read_audio

COMMAND = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "generate"]
# nohup and job runners start the tests with SIGINT ignored, and a child inherits that
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "


def speak(*arguments, folder, stdin=None):
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_both_backends_say_the_same(tmp_path):
    """The same seed gives the same codes on both sides, so the same length and nearly the same samples."""
    facts = {}
    for backend in ("mlx", "torch"):
        flags = [
            "--backend",
            backend,
            "--seed",
            "3",
            "--max-seconds",
            "0.5",
            "--json",
            "-o",
            f"{backend}.wav",
        ]
        done = speak(*flags, folder=tmp_path, stdin="[S1] Hello there. [S2] Hello.\n")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        facts[backend] = json.loads(done.stdout)
    assert facts["mlx"]["frames"] == facts["torch"]["frames"] == 17
    assert facts["mlx"]["seed"] == 3
    assert facts["mlx"]["finish_reason"] == "length"
    mlx_side, torch_side = (read_audio(tmp_path / f"{backend}.wav", 16000) for backend in ("mlx", "torch"))
    assert len(mlx_side) == facts["mlx"]["samples"]
    np.testing.assert_allclose(mlx_side, torch_side, atol=2e-3)


def test_a_reference_is_continued(tmp_path):
    first = speak("-t", "[S1] Hello there, you.", "--seed", "3", "-o", "a.wav", "--quiet", folder=tmp_path)
    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    flags = [
        "--ref-audio",
        "a.wav",
        "--ref-text",
        "[S1] Hello there, you.",
        "--max-seconds",
        "0.2",
        "--seed",
        "3",
    ]
    second = speak("-t", "Goodbye.", *flags, "-o", "b.flac", folder=tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout.startswith("b.flac: 0.2")
    assert "than real time)" in second.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on Unix")
def test_interrupting_a_stream_keeps_a_valid_file(tmp_path):
    file = tmp_path / "a.wav"
    flags = ["-t", "[S1] Hello there, this is a long story. " * 4, "--stream", "-o", str(file), "--seed", "3"]
    python, option, script, command = COMMAND
    listening = [python, option, LISTENING + script, command]
    with subprocess.Popen(
        [*listening, *flags], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        deadline = time.monotonic() + 120
        while running.poll() is None and not has_sound(file) and time.monotonic() < deadline:
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert (running.returncode, out) == (130, b"")
    assert err.strip() == b"error: interrupted"
    assert len(read_audio(file, 16000)) > 0


def has_sound(file: Path) -> bool:
    return file.exists() and file.stat().st_size > 44


def test_it_works_offline_from_one_converted_folder(tmp_path, monkeypatch):
    """Without a home folder; HF_HUB_OFFLINE is set for all tests."""
    from tts_core.voice.embedded import CODEC, DIA

    convert = [sys.executable, "-c", "from mlx_port.commands.main import main; main()", "convert"]
    where = ["--hf-path", str(DIA), "--codec", str(CODEC), "--mlx-path", "voice"]
    subprocess.run([*convert, *where], cwd=tmp_path, check=True, capture_output=True)
    for variable in ("XDG_CACHE_HOME", "HOME", "HF_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "nothing"))
    flags = ["--model", "voice", "-t", "Hello.", "--seed", "3", "--max-seconds", "0.2"]
    assert speak(*flags, folder=tmp_path).returncode == 0
    written = [path.name for path in (tmp_path / "nothing").rglob("*") if path.is_file()]
    assert not [name for name in written if not name.startswith("blas-")]  # unless one is preloaded
