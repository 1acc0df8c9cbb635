"""Qwen3-TTS's pipelines in every mode: both sides, streams and wholes, recordings that speech continues."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import assert_same_speech, converted
from tests.sides import SIDES
from tests.tiny.qwen3 import write_published
from tests.windows import Windows
from tts_core.errors import GenerationError, UsageError
from tts_core.prompt import Prompt
from tts_core.qwen3.config import BASE, CUSTOM_VOICE, MODES, VOICE_DESIGN
from tts_core.results import merge

TIME = np.arange(3000) / 1500
SPEECH = (np.sin(700 * TIME + 40 * TIME**2) / 3).astype(np.float32)
HEARD, CONTINUED = (Prompt.of(SPEECH, said, sample_rate=1500) for said in (None, "An inn is near."))
GIVEN: dict[str, tuple[dict[str, Any], ...]] = {
    BASE: ({"prompt": HEARD}, {"prompt": CONTINUED}, {"prompt": CONTINUED, "layout": "whole"}),
    CUSTOM_VOICE: ({"voice": "vivian"}, {"voice": "eric", "instruct": "slow", "layout": "streamed"}),
    VOICE_DESIGN: ({"instruct": "An old sailor."},),
}
CASES = [(mode, place) for mode in MODES for place in range(len(GIVEN[mode]))]


@cache
def folder(mode: str) -> Path:
    return converted(lambda made: write_published(made, mode, eos=0.2))


@cache
def pipeline(mode: str, side: str) -> Any:
    device = {"device": "cpu"} if side == "torch" else {}
    return import_module(SIDES[side]).load(folder(mode), dtype="float32", **device)


@cache
def windows(mode: str) -> Windows:
    package = import_module("torch_ref")
    return Windows("qwen3", lambda dtype: package.load(folder(mode), dtype=dtype, device="cpu"))


@pytest.mark.parametrize(("mode", "place"), CASES)
def test_both_sides_speak_the_same(mode: str, place: int) -> None:
    one, other = (
        pipeline(mode, side).generate("The inn. ", seed=4, max_frames=20, **GIVEN[mode][place])
        for side in SIDES
    )
    assert_same_speech(one, other, windows=windows(mode))
    assert one.codes.shape[1] > 2


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("mode", "place"), CASES)
def test_a_stream_is_the_whole(side: str, mode: str, place: int) -> None:
    """Up to one sample at the start of speech that continues a recording: there the original rounds down."""
    speaker, given = pipeline(mode, side), GIVEN[mode][place]
    whole = speaker.generate("The inn.", seed=4, max_frames=20, **given)
    streamed = merge(list(speaker.stream("The inn.", seed=4, max_frames=20, **given)))
    np.testing.assert_array_equal(streamed.codes, whole.codes)
    assert 0 <= len(whole.audio) - len(streamed.audio) <= 1
    audio = whole.audio[len(whole.audio) - len(streamed.audio) :]
    np.testing.assert_allclose(streamed.audio, audio, rtol=0, atol=windows(mode).rounding(whole))


@pytest.mark.parametrize("side", SIDES)
def test_a_vector_is_the_voice_of_its_recording(side: str) -> None:
    speaker = pipeline(BASE, side)
    vector = speaker.speaker(HEARD)
    np.testing.assert_array_equal(speaker.speaker(vector), vector)
    one = speaker.generate("The inn.", seed=4, max_frames=9, prompt=vector)
    other = speaker.generate("The inn.", seed=4, max_frames=9, prompt=HEARD)
    np.testing.assert_array_equal(one.codes, other.codes)
    with pytest.raises(UsageError, match="speaker vector of 64 numbers"):
        speaker.generate("The inn.", prompt=vector[:5])


@pytest.mark.parametrize("side", SIDES)
def test_seeds_and_voices_change_codes(side: str) -> None:
    speaker = pipeline(CUSTOM_VOICE, side)
    spoken = [
        speaker.generate("The inn.", seed=seed, voice=voice, max_frames=20).codes.tobytes()
        for seed, voice in ((1, "vivian"), (2, "vivian"), (1, "eric"), (1, "vivian"))
    ]
    assert len(set(spoken)) == 3
    assert spoken[0] == spoken[3]


@pytest.mark.parametrize("side", SIDES)
def test_speech_that_does_not_end_is_cut_with_a_warning(side: str, caplog: pytest.LogCaptureFixture) -> None:
    speaker = pipeline(CUSTOM_VOICE, side)
    for seed in range(40):
        result = speaker.generate("河", seed=seed, voice="vivian", language="chinese")
        if result.finish_reason == "length":
            break
    assert result.finish_reason == "length", "one of the seeds does not end"
    assert "did not end within" in caplog.text


@pytest.mark.parametrize("side", SIDES)
def test_weights_that_overflow_are_named(side: str) -> None:
    speaker = import_module(SIDES[side]).load(folder(CUSTOM_VOICE), dtype="float32")
    head = speaker.engine.network.talker.model.layers[1].mlp.down_proj
    if side == "torch":
        head.weight.data.fill_(float("inf"))
    else:
        head.weight = head.weight + float("inf")
    with pytest.raises(GenerationError, match=r"layers\.1.* gives NaN or infinity in float32"):
        speaker.generate("The inn.", seed=1, max_frames=5, voice="vivian")
