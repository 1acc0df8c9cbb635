"""`mlx-port mcp` by the package's own client, over stdio."""

import asyncio
import os
import sys

import numpy as np
import pytest
import soundfile

from mlx_port.commands import main as cli
from tests.mlx_port.commands.serve.served import served

CODE = "from mlx_port.commands.main import main; main()"
SPEAKERS = """# a module of the name sounddevice, whose device is a file
class PortAudioError(Exception):
    pass


def query_devices(kind):
    return {"kind": kind}


class OutputStream:
    def __init__(self, samplerate, channels, dtype):
        self.file = open("played.raw", "ab")
        open("rate.txt", "w").write(f"{samplerate} {channels} {dtype}")

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, samples):
        self.file.write(samples.tobytes())
"""


def asked(folder, *flags, calls):
    """The answers of the tools, and the tools' names."""
    mcp = pytest.importorskip("mcp", reason="mcp is not installed")
    from mcp.client.stdio import StdioServerParameters  # pyright: ignore[reportMissingImports]

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    how = StdioServerParameters(
        command=sys.executable, args=["-c", CODE, "mcp", *flags], env=environment, cwd=str(folder)
    )

    async def talk():
        async with mcp.Client(how) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            return names, [await client.call_tool(*call) for call in calls]

    return asyncio.run(talk())


def test_the_embedded_voice_speaks_to_a_file(tmp_path):
    calls = [
        ("speak", {"text": "Hello.", "seed": 1, "output": "a.wav"}),
        ("voices", {}),
        ("speak", {"text": "Hello.", "voice": "nobody"}),
        ("speak", {"text": "Hello.", "output": "-"}),
    ]
    names, (spoken, voices, unknown, stdout) = asked(tmp_path, calls=calls)
    assert names == ["speak", "voices"]
    found = spoken.structured_content
    assert not spoken.is_error, spoken.content
    assert found["path"] == str(tmp_path / "a.wav")
    assert found["seconds"] == pytest.approx(soundfile.info(tmp_path / "a.wav").duration, abs=1e-3)
    assert not voices.is_error
    assert unknown.is_error
    assert "nobody" in unknown.content[0].text
    assert "stdout carries the protocol" in stdout.content[0].text


def test_a_running_server_speaks(tmp_path):
    with served(tmp_path / "voices") as server:
        calls = [("speak", {"text": "Hello you.", "output": "b.wav", "speed": 1}), ("voices", {})]
        _, (spoken, voices) = asked(tmp_path, "--url", server.url, calls=calls)
    assert not spoken.is_error, spoken.content
    assert spoken.structured_content["seconds"] == pytest.approx(
        soundfile.info(tmp_path / "b.wav").duration, abs=1e-3
    )
    assert "alloy" in voices.structured_content["result"]


def test_play_plays_all_of_it_and_writes_a_file_only_if_named(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sounddevice.py").write_text(SPEAKERS)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    here = tmp_path / "here"
    here.mkdir()
    calls = [
        ("speak", {"text": "Hello.", "seed": 1, "play": True}),
        ("speak", {"text": "Hello.", "seed": 1, "play": True, "output": "a.wav"}),
    ]
    _, answers = asked(here, calls=calls)
    for answer in answers:
        assert not answer.is_error, answer.content
    samples, rate = soundfile.read(here / "a.wav", dtype="float32")
    assert [one.structured_content["path"] for one in answers] == [None, str(here / "a.wav")]
    assert sorted(file.name for file in here.iterdir()) == ["a.wav", "played.raw", "rate.txt"]
    assert (here / "rate.txt").read_text() == f"{rate} 1 float32"
    played = np.fromfile(here / "played.raw", np.float32).reshape(2, -1)
    np.testing.assert_array_equal(played[0], played[1])
    np.testing.assert_allclose(played[1], samples, rtol=2**-15, atol=2**-15)  # of 16 bits


def test_play_without_a_device_speaks_nothing(tmp_path, monkeypatch):
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.syspath_prepend(str(tmp_path))
    _, [answer] = asked(tmp_path, calls=[("speak", {"text": "Hello.", "play": True})])
    assert answer.is_error
    assert "PortAudio library not found; pip install" in answer.content[0].text


def test_two_sources_or_no_address_are_refused(capsys):
    for flags, said in (
        (["--url", "http://x", "--model", "y"], "--model or --url"),
        (["--url", "x"], "http://"),
    ):
        assert cli.run(["mcp", *flags]) == 2
        assert said in capsys.readouterr().err
