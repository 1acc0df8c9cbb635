"""The three short examples: speak, play, a client of the server."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.mlx_port.commands.fake import Speaker

EXAMPLES = Path(__file__).parents[2] / "examples"
SHORT = ("speak", "play", "client")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run an example as a program."""

    def ran(name: str, *words: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    return ran


def test_they_have_at_most_twenty_lines():
    lengths = {path.stem: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert {*lengths} == {*SHORT}
    assert max(lengths.values()) <= 20


def test_speak(run, tmp_path, capsys):
    mlx_port = pytest.importorskip("mlx_port", reason="MLX is not installed")
    run("speak", "Hello.", tmp_path / "hello.wav")
    samples, rate = soundfile.read(tmp_path / "hello.wav")
    expected = mlx_port.generate("Hello.", seed=1)
    assert (rate, len(samples)) == (expected.sample_rate, len(expected.audio))
    assert capsys.readouterr().out.endswith(f"hello.wav: {len(samples) / rate:.2f} s of speech\n")


def test_play(run, monkeypatch):
    mlx_port = pytest.importorskip("mlx_port", reason="MLX is not installed")
    speaker = Speaker()
    monkeypatch.setitem(sys.modules, "sounddevice", speaker)
    run("play", "Hello there, my dear friend.")
    expected = [part.audio for part in mlx_port.stream("Hello there, my dear friend.", seed=1)]
    assert len(speaker.heard) == len(expected) > 1
    np.testing.assert_array_equal(np.concatenate(speaker.heard), np.concatenate(expected))


def test_client(run, tmp_path):
    pytest.importorskip("openai", reason="openai is not installed")
    pytest.importorskip("starlette", reason="starlette is not installed: extra serve")
    from tests.mlx_port.commands.serve.served import expected, served

    with served(tmp_path / "voices") as server:
        run("client", server.url, "one two three", tmp_path / "hello.mp3")
    assert (tmp_path / "hello.mp3").read_bytes() == expected("one two three")
