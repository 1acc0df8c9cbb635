"""The embedded voice served by both sides in one engine: loaded, warmed up and spoken in its thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mlx_port.loading
import torch_ref.loading
from mlx_port.api import converted_voice
from mlx_port.api import embedded_voice as mlx_voice
from torch_ref.api import embedded_voice as torch_voice
from tts_core.errors import CancelledError, UsageError
from tts_core.results import join
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.source import Source
from tts_core.voice.embedded import CODEC, DIA

pytestmark = pytest.mark.rest

ALONE = {"torch": torch_voice, "mlx": mlx_voice}
TEXTS = ("Yes, please.", "Where have they gone?", "It rained all night.")
LIMITS = (20, 34, 27)  # frames


def source(side: str) -> Source:
    def opened() -> Any:
        if side == "torch":
            return torch_ref.loading.open_parts(DIA, codec=CODEC, dtype="float32")
        return mlx_port.loading.open_parts(converted_voice())

    parts, package = opened(), torch_ref if side == "torch" else mlx_port
    return Source("dia", parts.configs, parts.documents, lambda: package.loading.assemble(opened()))


@pytest.fixture(scope="module")
def engine() -> Iterator[SpeechEngine]:
    made = SpeechEngine({side: source(side) for side in ALONE}, places=3)
    made.start()
    assert made.wait_ready(120)
    yield made
    made.close()


@pytest.mark.parametrize("side", ALONE)
def test_requests_have_the_codes_that_they_have_alone(engine: SpeechEngine, side: str) -> None:
    """While another is cancelled, and one is refused."""
    voice = np.random.default_rng(3).integers(0, 60, (4, 7))
    options = [{"seed": seed, "max_frames": limit} for seed, limit in enumerate(LIMITS)]
    cancelled = engine.submit(side, "Nobody hears this.", options={"max_frames": 200})
    speeches = [engine.submit(side, text, options=own) for text, own in zip(TEXTS, options, strict=True)]
    assert speeches[0].get(60) is not None
    cancelled.cancel()
    with pytest.raises(UsageError, match="codes of shape"):
        engine.submit(side, "Yes.", prompt=voice)
    for speech, text, own in zip(speeches[1:], TEXTS[1:], options[1:], strict=True):
        found, expected = join(list(speech)), ALONE[side]().generate(text, **own)
        np.testing.assert_array_equal(found.codes, expected.codes)
        assert found.finish_reason == expected.finish_reason
        assert len(found.audio) == len(expected.audio)
    with pytest.raises(CancelledError):
        list(cancelled)
    *_, last = speeches[0]
    assert last.is_final_chunk


def test_both_sides_speak_the_same(engine: SpeechEngine) -> None:
    speeches = [engine.submit(side, TEXTS[0], options={"seed": 5, "max_frames": 30}) for side in ALONE]
    torch_side, mlx_side = (join(list(speech)) for speech in speeches)
    np.testing.assert_array_equal(torch_side.codes, mlx_side.codes)
