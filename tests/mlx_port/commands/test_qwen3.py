"""`mlx-port generate` with Qwen3-TTS: built-in voices, stored ones of the same name, what a mode lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from tests.contract.speakers import converted
from tests.mlx_port.commands.running import one_line, run
from tests.tiny.qwen3 import write_published
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, MODES, VOICE_DESIGN
from tts_core.serving.voices import VoiceStore, voices_folder

pytestmark = pytest.mark.rest

SAID = ("--text", "The inn.", "--seed", "5", "--max-seconds", "0.3", "-o", "a.wav")


@pytest.fixture(scope="module")
def folders() -> dict[str, Path]:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    return {mode: converted(lambda made, mode=mode: write_published(made, mode, eos=0.2)) for mode in MODES}


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    time = np.arange(48000) / 24000
    soundfile.write("v.wav", 0.3 * np.sin(700 * time + 40 * time**2), 24000)


def speak(capsys: Any, folder: Path, *flags: object) -> tuple[int, str]:
    """Returns the exit code and stderr."""
    code, _, err = run(capsys, "generate", "--model", folder, "--quiet", *SAID, *flags)
    return code, err


def sound() -> np.ndarray:
    return soundfile.read("a.wav", dtype="float32")[0]


def test_a_built_in_voice_is_named(folders: dict[str, Path], capsys: Any) -> None:
    from mlx_port import Qwen3Pipeline

    pipeline, heard = Qwen3Pipeline.load(folders[CUSTOM_VOICE]), {}
    for name in ("vivian", "Eric"):
        assert speak(capsys, folders[CUSTOM_VOICE], "--voice", name) == (0, "")
        expected = pipeline.generate("The inn.", voice=name.lower(), seed=5, max_seconds=0.3)
        heard[name] = sound()
        np.testing.assert_allclose(heard[name], expected.audio, rtol=0, atol=1e-4)
    assert heard["vivian"].tolist() != heard["Eric"].tolist()


def test_a_stored_voice_of_the_same_name(
    folders: dict[str, Path], capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """CustomVoice takes no recordings, so it uses its own; Base has no other."""
    assert speak(capsys, folders[CUSTOM_VOICE], "--voice", "vivian") == (0, "")
    own = sound()
    assert run(capsys, "voices", "add", "vivian", "v.wav")[0] == 0
    assert speak(capsys, folders[CUSTOM_VOICE], "--voice", "vivian") == (0, "")
    warning = "voice: vivian is also stored; Qwen3-TTS CustomVoice, which takes no recordings, uses its own"
    assert warning in caplog.messages
    assert sound().tolist() == own.tolist()
    assert speak(capsys, folders[BASE], "--voice", "vivian") == (0, "")
    stored = sound()
    assert speak(capsys, folders[BASE], "--ref-audio", "v.wav") == (0, "")
    np.testing.assert_allclose(stored, sound(), rtol=0, atol=1e-4)
    VoiceStore(voices_folder()).remove("vivian")
    assert "voice: vivian is not there" in speak(capsys, folders[BASE], "--voice", "vivian")[1]


@pytest.mark.parametrize(
    ("mode", "flags", "message"),
    [
        (
            CUSTOM_VOICE,
            ["--ref-audio", "v.wav"],
            "ref-audio: Qwen3-TTS CustomVoice takes no recording; give --voice, one of vivian, eric",
        ),
        (
            CUSTOM_VOICE,
            ["--voice", "vivian", "--ref-audio", "v.wav"],
            "voice: vivian is built in; leave --ref-audio and --ref-text out",
        ),
        (
            CUSTOM_VOICE,
            [],
            "voice: Qwen3-TTS CustomVoice speaks in a built-in voice; give one of vivian, eric",
        ),
        (CUSTOM_VOICE, ["--voice", "vivien"], "did you mean vivian?"),
        (
            VOICE_DESIGN,
            ["--ref-audio", "v.wav"],
            "ref-audio: Qwen3-TTS VoiceDesign takes no recording; leave it out",
        ),
        (VOICE_DESIGN, [], "instruct: Qwen3-TTS VoiceDesign needs a description of the voice in words"),
        (BASE, [], "give --ref-audio"),
        (BASE, ["--ref-audio", "v.wav", "--ref-text", "An inn. " * 20], "or --trust-transcript"),
    ],
)
def test_what_a_mode_lacks_is_one_line(
    folders: dict[str, Path], capsys: Any, mode: str, flags: list[str], message: str
) -> None:
    one_line(capsys, 2, message, "generate", "--model", folders[mode], *SAID, *flags)
    assert not Path("a.wav").exists()
