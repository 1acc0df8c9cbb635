"""Pauses, speed and captions in every model on both sides. Dia2's pauses are steps of its own."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import (
    SMALL,
    assert_same_speech,
    every_model,
    every_side,
    request,
    speaker,
    unlimited,
    windows,
)
from tests.tiny.metavoice_pipeline import Ending
from tts_core import models
from tts_core.results import GenerationResult, merge

pytestmark = pytest.mark.rest

SILENCES = (0.1, 0.25, 0.4, 0.05)  # seconds
SAID = ("The inn is near.", "Then it thins out.", "There it ends!")
TEXT = "[pause:0.1] {} [pause:0.25] {} <break time='400ms'/> {} [pause:0.05]".format(*SAID)

STEPPED = ("dia2",)  # speaks pauses itself, inside a piece

silent = pytest.mark.parametrize("model", [name for name in models.NAMES if name not in STEPPED])
stepped = pytest.mark.parametrize("model", STEPPED)
sides_and_speeds = pytest.mark.parametrize(("side", "speed"), [("torch", 1.0), ("torch", 1.6), ("mlx", 1.6)])


def arguments(model: str, speed: float) -> dict[str, Any]:
    """MetaVoice's random network would not end by itself."""
    own: dict[str, Any] = {"noise": Ending(3, 12)} if model == "metavoice" else {"seed": 3}
    return unlimited(model, speed=speed, **own)


@cache
def spoken(model: str, side: str, speed: float) -> GenerationResult:
    return speaker(model, side).generate(TEXT, **arguments(model, speed))


def gaps(result: GenerationResult) -> list[np.ndarray]:
    """The samples before the first caption, between captions, and after the last."""
    times = [0.0, *(time for cue in result.cues for time in (cue.start, cue.end)), result.audio_seconds]
    places = [round(time * result.sample_rate) for time in times]
    return [result.audio[start:stop] for start, stop in zip(places[::2], places[1::2], strict=True)]


@silent
@sides_and_speeds
def test_pauses_are_silence_of_their_length(model: str, side: str, speed: float) -> None:
    """At any speed, with nothing else between the pieces."""
    result = spoken(model, side, speed)
    said = " ".join(cue.text.removeprefix("[S1] ") for cue in result.cues)
    assert said.split() == " ".join(SAID).split()
    written = [gap for gap, cue in zip(gaps(result), [None, *result.cues], strict=True) if is_end(cue)]
    assert [len(gap) for gap in written] == [round(one * result.sample_rate) for one in SILENCES]
    assert not np.concatenate(gaps(result)).any()


@stepped
@sides_and_speeds
def test_pauses_are_steps_of_their_length(model: str, side: str, speed: float) -> None:
    """Each comes between the same words, in frames; nothing is inserted, and the next word waits so long."""
    result, pipeline = spoken(model, side, speed), speaker(model, side)
    rate = pipeline.codec_config.frame_rate
    steps = [round(one * rate) for one in SILENCES]
    [piece] = request(model, side, TEXT, **SMALL[model].cut).pieces
    words = [sentence.split() for sentence in SAID]
    expected = [steps[0], *words[0], steps[1], *words[1], steps[2], *words[2], steps[3]]
    assert [entry.text if entry.tokens else entry.padding for entry in piece.entries] == expected
    assert [word.text for word in result.words] == " ".join(SAID).split()
    starts = [word.start * speed * rate for word in result.words]
    for place, least in zip((len(words[0]), len(words[0] + words[1])), steps[1:], strict=False):
        assert starts[place] - starts[place - 1] > least
    hop = result.sample_rate / rate
    assert len(result.audio) == round(result.codes.shape[1] * hop / speed)


def is_end(cue: Any) -> bool:
    """Check if a written pause follows; MetaVoice cuts a part into several pieces."""
    return cue is None or cue.text.endswith((".", "!"))


@every_model
@every_side
def test_a_stream_and_a_batch_say_the_same(model: str, side: str) -> None:
    whole, named = spoken(model, side, 1.6), arguments(model, 1.6)
    parts = list(speaker(model, side).stream(TEXT, **named))
    assert len(parts) >= 3
    prompt = named.pop("prompt")
    [batch] = speaker(model, side).generate_batch([TEXT], prompts=[prompt], **named)
    for other in (merge(parts), batch):
        assert_same_speech(other, whole, windows=windows(model))
        assert other.cues == whole.cues


@every_model
def test_speed_changes_only_the_length(model: str) -> None:
    """The codes stay the same, and each piece is shorter by the factor."""
    plain, fast = spoken(model, "torch", 1.0), spoken(model, "torch", 1.6)
    np.testing.assert_array_equal(fast.codes, plain.codes)
    for one, other in zip(plain.cues, fast.cues, strict=True):
        slow, quick = ((cue.end - cue.start) * plain.sample_rate for cue in (one, other))
        assert round(quick) == round(round(slow) / 1.6)


@every_model
def test_captions_of_both_sides_agree(model: str) -> None:
    ours, theirs = (spoken(model, side, 1.6).captions() for side in ("mlx", "torch"))
    assert ours.srt() == theirs.srt()
    assert ours.vtt().count(" --> ") == len(ours) >= (1 if model in STEPPED else 3)


@every_model
def test_what_looks_like_markup_is_spoken(model: str) -> None:
    text = "if a < b, I <b>am</b> <yours"
    assert " ".join(request(model, "torch", text).pacing.texts).removeprefix("[S1] ") == text
