"""A fake pipeline for `mlx-port generate`, and a recording, in an empty working folder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import soundfile


@pytest.fixture
def pipeline(monkeypatch, tmp_path):
    from tests.mlx_port.commands.fake import FakePipeline, install

    monkeypatch.chdir(tmp_path)
    return install(monkeypatch, FakePipeline())


@pytest.fixture
def takes_recordings(monkeypatch):
    """Let `generate` open a Dia that takes recordings, as the published ones do, of the embedded sizes."""
    from mlx_port.commands import speak

    def opened(*given, open_model=speak.open_model):
        parts = open_model(*given)
        parts.configs = parts.configs | {"dia": replace(parts.configs["dia"], own_speakers=())}
        return parts

    monkeypatch.setattr(speak, "open_model", opened)


@pytest.fixture
def reference(pipeline, takes_recordings, tmp_path):
    soundfile.write(tmp_path / "voice.wav", np.zeros(16000, np.float32) + 0.1, 16000)
    return tmp_path / "voice.wav"
