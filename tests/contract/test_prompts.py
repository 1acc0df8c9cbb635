"""Requests that wait at the same moment are read in one pass: every model on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import (
    SMALL,
    TEXTS,
    alone,
    every_side,
    request,
    running_batch,
    speaker,
    spoken,
)
from tts_core.serving.session import Failed, Part
from tts_core.speaking.session import SpeechSession


def noted(session: SpeechSession, bad: Any = None) -> list[int]:
    """Note how many texts each pass reads. bad: inputs, by their seed, whose pass fails."""
    decoder, found = running_batch(session).decoder, list[int]()
    read = decoder.read

    def counted(texts: Sequence[Any]) -> Any:
        found.append(len(texts))
        if any(text.noise.seed == bad for text in texts):
            raise ValueError("a text that cannot be read")
        return read(texts)

    decoder.read = counted
    return found


@pytest.mark.parametrize("model", SMALL)
@every_side
def test_requests_that_wait_are_read_in_one_pass_and_speak_as_alone(model: str, side: str) -> None:
    asked = [request(model, side, text, seed=seed) for seed, text in enumerate(TEXTS)]
    session = speaker(model, side).session(len(asked))
    passes = noted(session)
    for one, other in zip(spoken(session, *asked), asked, strict=True):
        np.testing.assert_array_equal(one.codes, alone(model, side, other).codes)
    session.close()
    assert passes[0] > 1
    assert len(passes) < len(asked) <= sum(passes)  # MetaVoice cuts texts into pieces


@pytest.mark.rest
@pytest.mark.parametrize("model", SMALL)
@every_side
def test_a_text_that_cannot_be_read_fails_alone(model: str, side: str) -> None:
    asked = [request(model, side, text, seed=seed) for seed, text in enumerate(TEXTS)]
    session = speaker(model, side).session(len(asked))
    passes, failed = noted(session, bad=2), list[int]()
    keys = [session.join(one) for one in asked]
    codes: dict[int, list[np.ndarray]] = {key: [] for key in keys}
    while session.running:
        for event in session.step():
            if isinstance(event, Failed):
                failed.append(event.key)
                assert str(event.error) == "a text that cannot be read"
                session.leave(event.key)
            else:
                codes[event.key].append(event.result.codes)
    session.close()
    assert failed == [keys[2]]
    assert max(passes) > 1
    for key, one in zip(keys, asked, strict=True):
        if key not in failed:
            expected = alone(model, side, one).codes
            np.testing.assert_array_equal(np.concatenate(codes[key], axis=-1), expected)


@pytest.mark.parametrize("model", [name for name, small in SMALL.items() if small.voices[0] is None])
@every_side
def test_requests_that_come_while_another_speaks_join_together(model: str, side: str) -> None:
    """With the next step, in one pass; all speak as alone."""
    asked = [request(model, side, text, seed=seed) for seed, text in enumerate(TEXTS)]
    session, codes = speaker(model, side).session(len(asked)), dict[int, list[np.ndarray]]()
    passes, keys = noted(session), [session.join(asked[0])]
    events = [*session.step()]
    assert sum(passes) == 1
    assert session.running == 1
    keys += [session.join(one) for one in asked[1:]]
    events += session.step()
    assert passes == [1, 3]
    while session.running:
        events += session.step()
    session.close()
    for event in events:
        assert isinstance(event, Part), event
        codes.setdefault(event.key, []).append(event.result.codes)
    for key, one in zip(keys, asked, strict=True):
        expected = alone(model, side, one).codes
        np.testing.assert_array_equal(np.concatenate(codes[key], axis=-1), expected)
