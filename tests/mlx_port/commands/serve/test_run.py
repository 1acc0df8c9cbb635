"""How the HTTP server is configured, and what it logs."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_port.commands.serve import run
from mlx_port.commands.serve.settings import Settings
from tests.mlx_port.commands.serve.served import Talk, served
from tts_core.errors import UsageError


def test_answers_do_not_name_the_server_and_messages_have_a_bound_above_their_limit(tmp_path: Path) -> None:
    with served(tmp_path, wait=False) as server:
        assert "server" not in server.get("/health").headers
        config = server.server.config
        assert config.ws_max_size == 4 * server.service.settings.limits.message
        assert config.ws_per_message_deflate is False


def test_a_line_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    root, heard = logging.getLogger(), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    root.addHandler(handler)
    try:
        with run._logging(logging.INFO):
            for name in run._LOGS:
                logging.getLogger(name).info("of %s", name)
    finally:
        root.removeHandler(handler)
    assert heard == []
    said = capsys.readouterr().err
    assert [said.count(f"of {name}\n") for name in run._LOGS] == [1] * len(run._LOGS)


@pytest.mark.parametrize("name", ["port", "wyoming"])
def test_a_port_that_is_taken_is_told_before_a_model_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name == "wyoming":
        pytest.importorskip("wyoming", reason="wyoming is not installed: extra wyoming")
    talk, loads = Talk(), list[str]()
    load, talk.load = talk.load, lambda: loads.append("load") or load()
    monkeypatch.setattr(run, "check_backend", lambda backend: None)
    monkeypatch.setattr(run, "sources", lambda settings: {"talk": talk})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"port": port} if name == "port" else {"port": 0, "wyoming": ("127.0.0.1", port)}
        with pytest.raises(UsageError, match=rf"^{name}: 127\.0\.0\.1:{port} cannot be opened"):
            run.run(Settings(voices=tmp_path, **ports), quiet=True)  # pyright: ignore[reportArgumentType]
    assert loads == []


def test_a_folder_of_voices_that_is_not_there_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is no folder is refused."""
    assert run._store(Settings(voices=tmp_path)).folder == tmp_path
    assert caplog.text == ""
    assert run._store(Settings(voices=tmp_path / "no")).folder == tmp_path / "no"
    assert f"voices: {tmp_path}/no is not there; the first voice that is added creates it" in caplog.text
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"^voices: .*/file is no folder; give one"):
        run._store(Settings(voices=tmp_path / "file"))


def test_warnings_of_open_doors_go_to_stderr(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    access = SimpleNamespace(api_key=None, host="0.0.0.0")
    settings = SimpleNamespace(access=access, wyoming=("0.0.0.0", 10200))
    service: Any = SimpleNamespace(settings=settings, voices=SimpleNamespace(folder=tmp_path))
    run._announce(service)
    out, err = capsys.readouterr()
    assert (out, err.count("warning: anybody who reaches 0.0.0.0 can ")) == ("", 2)
