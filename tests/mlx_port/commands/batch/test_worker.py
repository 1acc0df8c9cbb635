"""A worker of `mlx-port batch`; its model is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from mlx_port.commands.batch import worker
from mlx_port.commands.batch.worker import Setting, build_speaker
from mlx_port.commands.loading_flags import Loading
from tests.tts_core.serving.talkers import Chorus, Said
from tts_core.bulk.requests import BulkWork, RowRequests
from tts_core.bulk.rows import TextRow


def test_its_session_has_no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[int, dict[str, Any]]] = []

    def session(places: int, **how: Any) -> Chorus:
        opened.append((places, how))
        return Chorus(places, [])

    files = SimpleNamespace(model="talker", configs={}, documents={}, codec_precision="float32")
    monkeypatch.setattr(worker, "open_model", lambda *given: files)
    monkeypatch.setattr(worker, "load_pipeline", lambda *given: SimpleNamespace(session=session))
    build_speaker(Setting(None, Loading(), 3, BulkWork({}, Path("voices"), ".flac", None)))
    assert opened == [(3, {"streamed": False})]


@pytest.mark.parametrize(
    ("backend", "computes", "chosen", "decodes"),
    [("torch", "float32", "tf32", "tf32"), ("mlx", "unknown", "float32", "unknown")],
)
def test_rows_name_the_arithmetic(
    backend: Literal["mlx", "torch"],
    computes: str,
    chosen: str,
    decodes: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of products, and of the codec, as it is where the worker runs."""
    files = SimpleNamespace(model="talker", configs={}, documents={}, codec_precision=chosen)
    session = SimpleNamespace(session=lambda places, **how: Chorus(places, []))
    monkeypatch.setattr(worker, "open_model", lambda *given: files)
    monkeypatch.setattr(worker, "load_pipeline", lambda *given: session)
    side = "torch_ref.limits.precision" if backend == "torch" else "mlx_port.runtime.arithmetic"
    monkeypatch.setattr(f"{side}.arithmetic", lambda *given: computes)
    labels = {"model": "talker", "codec_precision": chosen}
    made = build_speaker(
        Setting(None, Loading(backend), 1, BulkWork({}, Path("voices"), ".wav", None, labels))
    )
    monkeypatch.setattr(RowRequests, "request", lambda own, row: Said(tuple(row.text.split())))
    [ended] = made.speak([(TextRow(0, "a", "one two", seed=0), "key")])
    assert ended.fields["arithmetic"] == computes
    assert ended.fields["codec_precision"] == decodes
    assert ended.fields["model"] == "talker"
