"""`mlx-port mcp` by the package's own client, over stdio."""

import asyncio
import os
import sys

import pytest
import soundfile

from mlx_port.commands import main as cli
from tests.mlx_port.commands.serve.served import served

CODE = "from mlx_port.commands.main import main; main()"


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


def test_two_sources_or_no_address_are_refused(capsys):
    for flags, said in (
        (["--url", "http://x", "--model", "y"], "--model or --url"),
        (["--url", "x"], "http://"),
    ):
        assert cli.run(["mcp", *flags]) == 2
        assert said in capsys.readouterr().err
