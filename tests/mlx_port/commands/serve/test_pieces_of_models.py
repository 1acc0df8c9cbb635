"""Pieces of models that speak every piece from one recording; spoken again, each has the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlx_port.commands import main as cli
from mlx_port.commands.serve.settings import Settings
from tests.mlx_port.commands.serve.served import recording, served
from tests.mlx_port.commands.serve.spoken import events, pieces_of, sound_of
from tests.tiny.published_models import sources

pytestmark = pytest.mark.slow
TEXT = "I have 3 cats. They are gray, and one of them is called Tom. That is all I know about 2 of them."


@pytest.mark.parametrize(("name", "options"), [("mars5", {"timesteps": 4}), ("metavoice", {})])
def test_a_piece_with_its_own_seed(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    pytest.importorskip("torch", reason="the published pickles need torch")
    pytest.importorskip("mlx.core", reason="MLX is not installed")
    from mlx_port.commands.serve.run import sources as opened

    folder = tmp_path / "model"
    given = [flag for path in sources(name) for flag in ("--hf-path", str(path))]
    assert cli.run(["convert", *given, "--mlx-path", str(folder), "--dtype", "float32"]) == 0
    with served(tmp_path / "voices", opened(Settings(models=(str(folder),)))) as server:
        server.service.voices.add("own", [recording(3.0)], ["These are some thirty letters."], "yes")
        form = {"response_format": "wav", "stream_format": "sse"}
        body = {"input": TEXT, "voice": "own", "seed": 5, "piece_seconds": 2.0, **options}
        response = server.post(**body, **form, pieces=True)
        rate, sound = int(response.headers["x-sample-rate"]), sound_of(events(response))
        pieces, fade = pieces_of(events(response)), round(0.02 * int(response.headers["x-sample-rate"]))
        assert len(pieces) > 2
        for piece in (pieces[0], pieces[-1]):
            own = sound[round(piece["start"] * rate) : round(piece["end"] * rate)]
            again = sound_of(events(server.post(**piece["again"], **form)))
            assert len(again) == len(own) > 2 * fade
            np.testing.assert_array_equal(again[fade:-fade], own[fade:-fade])
