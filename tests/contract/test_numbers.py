"""Whatever numbers a request's options have, the speech of others stays as it is."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.attacks import (
    APART,
    PLAIN,
    PROMPTS,
    Attack,
    Beside,
    at_the_doors,
    attacks,
    four,
)
from tests.contract.speakers import (
    TEXTS,
    assert_same_speech,
    every_model,
    every_side,
    source,
    speaker,
    spoken,
)
from tests.json_numbers import numeric_options
from tts_core.errors import ResourceError, UsageError
from tts_core.results import GenerationResult, merge
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.speech import Speech
from tts_core.serving.statistics import Ended

pytestmark = pytest.mark.rest

NUMBERS = 60  # put to the doors for each option; test_every_number.py has 2,000
PLACES = 8
ATTACKS = 24  # requests, most of which have a number for every option
SOON = 120.0  # seconds; only a test that hangs waits so long


def taken(model: str, side: str, folder: Path) -> list[Attack]:
    """Some requests with numbers that the doors took."""
    values = {option: at_the_doors(model, option, NUMBERS, folder) for option in numeric_options(model)}
    return random.Random(f"{model} {side}").sample([*attacks(model, values)], ATTACKS)


@every_model
@every_side
def test_numbers_of_one_request_harm_no_other(model: str, side: str, tmp_path: Path) -> None:
    """Four requests keep their codes and samples exactly while others come and go."""
    opened, session = source(model, side), speaker(model, side).session(PLACES)
    asked = four(opened)
    expected = spoken(session, *asked)
    crowd = Beside(opened, session, asked, expected).run(taken(model, side, tmp_path))
    session.close()
    assert crowd.spoken >= 4
    assert crowd.ran.total() > crowd.refused.total(), crowd.reasons


def given(model: str, place: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `SpeechEngine.submit`, its options as the doors take them."""
    prompts = PROMPTS[model]
    chosen = {"options": options, "prompt": prompts[place % len(prompts)]}
    return {"model": model, "text": TEXTS[place % len(TEXTS)], **chosen}


def heard(asked: Sequence[Speech], long: Sequence[Speech] = ()) -> list[GenerationResult]:
    """Wait for all of `asked`, while callers of `long` speeches leave soon after these began."""
    end = time.monotonic() + SOON
    while any(one.ended is None for one in asked):
        assert time.monotonic() < end
        time.sleep(0.02)
        for one in long:
            if one.started is not None:
                one.cancel()
    for one in long:
        one.cancel()
    return [merge(list(one)) for one in asked]


@every_model
@every_side
def test_numbers_of_a_servers_requests(
    model: str, side: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server runs: four are exact, and no request ends with an error of the batch."""
    ended, running, long = list[Ended](), list[Speech](), list[Speech]()
    others = taken(model, side, tmp_path)
    options = [{"seed": place, **PLAIN[model]} for place in range(4)]
    engine = SpeechEngine({model: source(model, side)}, places=PLACES, on_end=ended.append)
    engine.start()
    try:
        assert engine.wait_ready(SOON)
        expected = heard([engine.submit(**given(model, *one)) for one in enumerate(options)])
        quiet = [engine.submit(**given(model, *one)) for one in enumerate(options)]
        for one in others:
            with suppress(UsageError, ResourceError):
                speech = engine.submit(**given(model, one.place, one.options))
                (long if one.drawn.keys() & {*APART} else running).append(speech)
        for found, other in zip(heard(quiet, long), expected, strict=True):
            assert_same_speech(found, other)
        for speech in running:
            with suppress(UsageError, ResourceError):
                assert merge(list(speech)).finish_reason in ("stop", "length")
    finally:
        engine.close(SOON)
    assert {one.outcome for one in ended} <= {"stop", "length", "cancelled", "UsageError", "ResourceError"}
    last = max(one.ended or 0 for one in quiet)
    assert sum((one.started or last) < last for one in (*running, *long)) > ATTACKS / 4
    assert not caplog.records
