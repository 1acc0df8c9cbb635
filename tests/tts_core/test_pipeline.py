"""A generation logs one line before it starts."""

import logging

import pytest

pytest.importorskip("mlx.core", reason="the embedded voice runs on MLX here")


def test_a_generation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    from mlx_port.api import embedded_voice

    with caplog.at_level(logging.INFO, logger="tts_core"):
        embedded_voice().stream("[S1] Hello there.", max_frames=2, seed=1)
    assert [record.getMessage() for record in caplog.records] == ["dia: 1 piece(s), about 0.9 s of speech"]
