"""A worker of `mlx-port batch`; its model is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_port.commands.batch import worker
from mlx_port.commands.batch.worker import Setting, Worker
from mlx_port.commands.loading_flags import Loading
from tests.tts_core.serving.talkers import Chorus
from tts_core.bulk.asking import Work


def test_its_session_has_no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, dict[str, Any]]] = []

    def session(places: int, **how: Any) -> Chorus:
        opened.append((places, how))
        return Chorus(places, [])

    files = SimpleNamespace(model="talker", configs={}, documents={})
    monkeypatch.setattr(worker, "open_model", lambda *given: files)
    monkeypatch.setattr(worker, "load_pipeline", lambda *given: SimpleNamespace(session=session))
    Worker(Setting(None, Loading(), 3, Work({}, Path("voices"), ".flac", None)))
    assert opened == [(3, {"streamed": False})]
