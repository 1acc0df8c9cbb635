"""A generation logs one line before it starts, and reports its progress now and then."""

import logging
import time

import pytest

from tts_core.pipeline import REPORT_SECONDS, Callbacks, Progress


def test_steps_are_reported_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage at once, its steps at most every REPORT_SECONDS; they are counted from its beginning."""
    now, told = [0.0], list[Progress]()
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    watch = Callbacks(told.append)
    watch.check()
    for stage in ("prompt", "speech"):
        watch.tell(stage, steps=30)
        for _ in range(30):
            now[0] += REPORT_SECONDS / 10 * 1.001
            watch.check()
    steps = [("prompt", 0), ("prompt", 10), ("prompt", 20), ("prompt", 30)]
    assert [(one.stage, one.step) for one in told] == [*steps, *(("speech", step) for _, step in steps)]


def test_a_generation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("mlx.core", reason="the embedded voice runs on MLX here")
    from mlx_port.api import embedded_voice

    with caplog.at_level(logging.INFO, logger="tts_core"):
        embedded_voice().stream("[S1] Hello there.", max_frames=2, seed=1)
    assert [record.getMessage() for record in caplog.records] == ["dia: 1 piece, about 0.9 s of speech"]
