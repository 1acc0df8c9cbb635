"""Common mistakes with MARS5 and MetaVoice: one line says what to do, before weights are read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from mlx_port.commands import main as cli
from tests.mlx_port.commands.fake import FakePipeline, install
from tests.parity.recorded_runs import folder as recorded_folder
from tests.tiny.published_models import sources

MODELS = ("mars5", "metavoice")


@pytest.fixture(scope="module")
def folder() -> Callable[[str], Path]:
    return recorded_folder


@pytest.fixture
def voice(tmp_path, monkeypatch) -> np.ndarray:
    """Eight seconds in the working folder, in stereo at 44.1 kHz: voice.wav and voice.mp3."""
    monkeypatch.chdir(tmp_path)
    sound = 0.2 * np.sin(np.arange(8 * 44100) / 44100 * 2 * np.pi * 150)
    stereo = np.stack([sound, 0.5 * sound], axis=1)
    for name in ("voice.wav", "voice.mp3"):
        soundfile.write(name, stereo, 44100)
    return sound


@pytest.fixture
def refused(monkeypatch, capsys) -> Callable[..., str]:
    """Run the command, which must fail with that exit code and one line; return the line."""
    pipeline = install(monkeypatch, FakePipeline())

    def run(code: int, *arguments: str | Path) -> str:
        capsys.readouterr()
        assert cli.run(list(map(str, arguments))) == code
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), pipeline.loaded) == ("", 1, [])
        assert err.startswith("error: ")
        return err

    return run


def speak(model: Path, **flags: str) -> list[str | Path]:
    given = {"text": "Hello there.", "ref_audio": "voice.wav"} | flags
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]
    return ["generate", "--model", model, *words]


@pytest.mark.parametrize("file", ["voice.wav", "voice.mp3"])
@pytest.mark.parametrize("model", MODELS)
def test_a_reference_may_be_stereo_and_mp3(model, file, folder, voice, monkeypatch, capsys):
    pipeline = install(monkeypatch, FakePipeline())
    assert cli.run(list(map(str, [*speak(folder(model), ref_audio=file), "--quiet"]))) == 0
    heard = pipeline.asked.voice
    rate, [sound] = (24000, [heard.samples]) if model == "mars5" else (16000, heard.utterances)
    assert len(sound) == pytest.approx(8 * rate, rel=0.01)
    assert 0.1 < np.abs(sound).max() < 0.2


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc, whose permissions say that root may write")
def test_a_place_that_takes_no_files(folder, voice, refused):
    assert "output: /proc cannot be written to" in refused(2, *speak(folder("mars5"), output="/proc/a.wav"))


def test_a_broken_wav_is_not_to_be_made_of_itself(folder, voice, refused):
    Path("voice.wav").write_bytes(b"RIFF and nothing more")
    assert "ffmpeg -i voice.wav voice_new.wav" in refused(2, *speak(folder("metavoice")))


@pytest.mark.parametrize(
    ("model", "part", "title"),
    [
        ("mars5", "nar", "MARS5 (NAR)"),
        ("mars5", "vocoder", "Vocos (the vocoder)"),
        ("metavoice", "speaker_encoder", "MetaVoice (speaker encoder)"),
    ],
)
def test_a_part_is_not_a_model(model, part, title, folder, voice, refused):
    whole = folder(model)
    err = refused(2, *speak(whole / part))
    part_of = f"contains only {title}, a part of a converted model"
    assert f"{part_of}; give the whole model's folder: {whole}" in err


@pytest.mark.torch
@pytest.mark.usefixtures("verify_here")
def test_verify_names_its_own_arguments(folder, voice, refused):
    model = folder("mars5")
    assert "error: SRC: nowhere is not there" in refused(3, "verify", "nowhere", model)
    assert "error: DST: nowhere is not there" in refused(3, "verify", model, "nowhere")
    assert "error: SRC...: missing; see mlx-port verify --help" in refused(2, "verify", model)
    err = refused(2, "verify", *sources("mars5"), folder("metavoice"), model)
    assert err.startswith("error: SRC: ")


def test_estimate_says_what_is_missing_of_the_model_that_it_is(folder, refused):
    err = refused(3, "estimate", "--model", folder("mars5") / "nar")
    assert "missing: weights of MARS5 (AR) and " in err
    assert "Dia" not in err


def test_commands_that_there_are_not(refused):
    err = refused(2, "speak")
    assert f"speak: no such command; choose one of {', '.join(cli.COMMANDS)}" in err
    assert "command missing; choose one of generate, convert" in refused(2)
