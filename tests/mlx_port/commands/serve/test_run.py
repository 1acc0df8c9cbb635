"""How the HTTP server is configured, and what it logs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mlx_port.commands.serve import run
from tests.mlx_port.commands.serve.served import served


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
