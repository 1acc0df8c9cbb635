"""A fake pipeline for `mlx-port generate`, and a recording, in an empty working folder."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile


@pytest.fixture
def pipeline(monkeypatch, tmp_path):
    from tests.mlx_port.commands.fake import FakePipeline, install

    monkeypatch.chdir(tmp_path)
    return install(monkeypatch, FakePipeline())


@pytest.fixture
def reference(pipeline, tmp_path):
    soundfile.write(tmp_path / "voice.wav", np.zeros(16000, np.float32) + 0.1, 16000)
    return tmp_path / "voice.wav"
