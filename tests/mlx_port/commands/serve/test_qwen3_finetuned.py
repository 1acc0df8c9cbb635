"""A server of a fine-tuned Qwen3-TTS, whose one voice has a capital letter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mlx_port.commands.serve.served import served
from tests.tiny.qwen3_finetuned import write_finetuned
from tts_core.serving.source import ModelSource


def test_the_server_starts_and_speaks_in_it(tmp_path: Path) -> None:
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from converters.convert import convert
    from converters.published import open_published
    from mlx_port.loading import assemble, open_parts

    convert(open_published(write_finetuned(tmp_path / "made"), offline=True), tmp_path / "out")
    parts = open_parts(tmp_path / "out")
    source = ModelSource(
        "qwen3", parts.configs, parts.documents, lambda: assemble(open_parts(tmp_path / "out"))
    )
    with served(tmp_path / "voices", source) as server:
        listed = [one["id"] for one in server.get("/v1/audio/voices").json()["voices"]]
        assert listed[0] == "anna"
        said = {"input": "The inn.", "response_format": "pcm", "seed": 5, "max_seconds": 0.3}
        sounds = [server.post(**said, voice=name) for name in ("Anna", "anna", "alloy")]
        assert [each.status_code for each in sounds] == [200] * 3
        assert len({each.content for each in sounds}) == 1
