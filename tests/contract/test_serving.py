"""A server's engine with every model on both sides: its requests have the speech that they have alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.contract.speakers import (
    SMALL,
    TEXTS,
    assert_same,
    every_model,
    every_side,
    given,
    source,
    speaker,
    unlimited,
    windows,
)
from tests.sides import SIDES
from tts_core import models
from tts_core.errors import CancelledError, UsageError
from tts_core.results import merge
from tts_core.serving.engine import SpeechEngine

SOON = 120.0  # seconds; only a test that hangs waits so long


@pytest.fixture(scope="module")
def engine() -> Iterator[SpeechEngine]:
    names = [(model, side) for model in models.NAMES for side in SIDES]
    made = SpeechEngine({f"{model} {side}": source(model, side) for model, side in names}, places=2)
    made.start()
    assert made.wait_ready(SOON)
    yield made
    made.close()


@every_model
@every_side
def test_requests_are_spoken_as_alone(engine: SpeechEngine, model: str, side: str) -> None:
    """Loaded and warmed up in the engine's thread, while another is cancelled and one is refused."""
    name, voice = f"{model} {side}", SMALL[model].voices[0]
    cancelled = engine.submit(name, TEXTS[1], options=SMALL[model].options, prompt=voice)
    speeches = [
        engine.submit(name, TEXTS[0], options={**SMALL[model].options, "seed": seed}, prompt=voice)
        for seed in (1, 2)
    ]
    cancelled.cancel()
    with pytest.raises(UsageError, match="no words"):
        engine.submit(name, "...", prompt=voice)
    for seed, speech in zip((1, 2), speeches, strict=True):
        expected = speaker(model, side).generate(TEXTS[0], seed=seed, **given(model))
        assert_same(merge(list(speech)), expected, windows=windows(model))
    with pytest.raises(CancelledError):
        list(cancelled)


@pytest.mark.rest
@every_model
def test_text_that_arrives_in_pieces(engine: SpeechEngine, model: str) -> None:
    """As the stream of the same pieces; a model that is fed does not wait for sentences."""
    pieces, arguments = ["The inn is near the hide.", " Then it thins out again."], unlimited(model, seed=3)
    voice = arguments.pop("prompt")
    speech = engine.submit(f"{model} mlx", pieces[0], options=arguments, prompt=voice, more=True)
    speech.feed(pieces[1])
    speech.end()
    found = merge(list(speech))
    expected = merge(list(speaker(model, "mlx").stream(iter(pieces), prompt=voice, **arguments)))
    np.testing.assert_array_equal(found.codes, expected.codes)
    assert (found.cues, found.words) == (expected.cues, expected.words)
