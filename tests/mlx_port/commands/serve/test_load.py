"""`mlx-port bench --server` against `mlx-port serve`."""

import io
import json

import pytest
import soundfile

from mlx_port.commands.bench.load import command
from tests.mlx_port.commands.running import run
from tests.mlx_port.commands.serve.served import expected
from tests.tts_core.serving import talkers


@pytest.mark.parametrize(("form", "rate"), [("pcm", 24000), ("wav", talkers.RATE)])
def test_our_own_server_is_understood(server, capsys, tmp_path, monkeypatch, form, rate):
    """Its rate comes from the headers or from the file; the sound is counted to the sample."""
    monkeypatch.setattr(command, "ALONE", 3)
    flags = ["--text", "one two three", "--rates", 10, "--seconds", 0.5, "--format", form]
    code, _, err = run(capsys, "bench", "--server", server.url, *flags, "--json", tmp_path / "a.json")
    assert code == 0, err
    alone, arriving = json.loads((tmp_path / "a.json").read_text("utf-8"))["loads"]
    body = expected("one two three", form)
    frames = len(body) // 2 if form == "pcm" else soundfile.info(io.BytesIO(body)).frames
    assert alone["sound"] == pytest.approx(3 * frames / rate)
    assert arriving["done"] == arriving["requests"] > 0
    assert server.figure("mlx_port_requests_total") == 1 + 3 + arriving["requests"]
