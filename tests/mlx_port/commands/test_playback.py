"""`mlx-port generate --play`: a loudspeaker that records in the place of sounddevice."""

import sys
import types

import pytest

from mlx_port.commands import main as cli
from tests.mlx_port.commands.fake import Speaker
from tts_core.extras import install


@pytest.mark.parametrize("flags", [[], ["--stream"]])
def test_play(pipeline, monkeypatch, capsys, tmp_path, flags):
    speaker = Speaker()
    monkeypatch.setitem(sys.modules, "sounddevice", speaker)
    assert cli.run(["generate", "-t", "Hello.", "--play", *flags]) == 0
    assert capsys.readouterr().out.startswith("played: 1.50 s of speech")
    assert speaker.rate == 16000
    assert sum(map(len, speaker.heard)) == 24000
    assert len(speaker.heard) == (3 if flags else 1)
    assert list(tmp_path.iterdir()) == []


def test_play_and_write(pipeline, monkeypatch, tmp_path):
    speaker = Speaker()
    monkeypatch.setitem(sys.modules, "sounddevice", speaker)
    assert cli.run(["generate", "-t", "Hello.", "--play", "-o", "a.wav", "--quiet"]) == 0
    assert sum(map(len, speaker.heard)) == 24000
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]


def no_portaudio(name):
    raise OSError("PortAudio library not found")


@pytest.mark.parametrize("state", ["absent", "no PortAudio", "no device"])
def test_what_is_missing_is_named_before_weights_load(pipeline, monkeypatch, capsys, state):
    if state == "no PortAudio":
        monkeypatch.setitem(sys.modules, "sounddevice", None)
        finder = types.SimpleNamespace(
            find_spec=lambda name, *rest: no_portaudio(name) if name == "sounddevice" else None
        )
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        monkeypatch.delitem(sys.modules, "sounddevice")
    else:
        monkeypatch.setitem(sys.modules, "sounddevice", Speaker(devices=0) if state == "no device" else None)
    code = 2 if state == "no device" else 3
    assert cli.run(["generate", "-t", "Hello.", "--play"]) == code
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert (
        "--output" if state == "no device" else f"{install('play')}; on Linux also: apt install libportaudio2"
    ) in err
    assert pipeline.loaded == []


def test_a_device_that_fails_is_an_error(pipeline, monkeypatch, capsys):
    speaker = Speaker()

    def fail(**how):
        raise speaker.PortAudioError("unplugged")

    speaker.OutputStream = fail
    monkeypatch.setitem(sys.modules, "sounddevice", speaker)
    assert cli.run(["generate", "-t", "Hello.", "--play"]) == 6
    assert "play: the device failed (unplugged)" in capsys.readouterr().err
