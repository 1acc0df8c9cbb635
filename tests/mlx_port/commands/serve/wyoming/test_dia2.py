"""A small Dia2 behind the Wyoming port: a text of several contexts that streams in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mlx_port.commands.serve.names import VOICES, seed_of
from tests.contract.speakers import source, speaker
from tests.mlx_port.commands.serve.live.test_dia2 import TEXT
from tests.mlx_port.commands.serve.wyoming.asking import address, streamed, wyoming_server
from tts_core.results import join

pytestmark = pytest.mark.rest


def test_a_text_goes_on_beyond_the_context(tmp_path: Path) -> None:
    """Its sound is that of the pipeline, with the seed of the default voice."""
    with wyoming_server(tmp_path, {"dia2": source("dia2", "mlx")}) as server:
        sound = streamed(address(server), *(TEXT[start : start + 5] for start in range(0, len(TEXT), 5)))
    expected = join(list(speaker("dia2", "mlx").stream([TEXT], seed=seed_of(VOICES[0]))))
    assert len(expected.cues) > 1
    heard = np.frombuffer(sound, "<i2")
    np.testing.assert_allclose(heard, 32767 * expected.audio, rtol=0, atol=1.01)  # rounded
