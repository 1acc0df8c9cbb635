"""Whatever numbers a request's options have, the speech of others stays as it is."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.attacks import APART, PLAIN, PROMPTS, assert_exact, at_the_doors
from tests.contract.attacks import attacks as every_attack
from tests.contract.speakers import TEXTS, every_model, every_side, source, speaker
from tests.json_numbers import accepted, numeric_options
from tts_core.errors import ResourceError, UsageError
from tts_core.options import options_class, single_values
from tts_core.results import GenerationResult, join
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Failed, Session
from tts_core.serving.speech import Speech
from tts_core.serving.statistics import Ended

pytestmark = pytest.mark.rest

NUMBERS = 400  # drawn for each option; tests/contract/test_every_number.py has 2,000
ATTACKS = 60  # requests, each with a random accepted number for most options
PLACES = 6
SUBMITTED = 24  # attacks on a server's engine
SOON = 120.0  # seconds; only a test that hangs waits so long
SHORT = {
    "max_frames": 8,
    "max_seconds": 0.1,
    "timesteps": 9,
    "generate_max_len_override": 120,
    "ref_audio_pad": 1,
}


def request(pipeline: Any, model: str, place: int, **changes: Any) -> Any:
    """A checked request, as the server's and batch's doors make it."""
    options = options_class(model)(**single_values(options_class(model), changes))
    prompts = PROMPTS[model]
    return pipeline.request(TEXTS[place % len(TEXTS)], options, prompts[place % len(prompts)])


def attacks(model: str, side: str) -> list[dict[str, Any]]:
    """Options of the requests; what would make one long is short, for the test's own time."""
    draw, numbers = random.Random(f"{model} {side}"), dict(accepted(model, NUMBERS))
    for name, most in SHORT.items():
        if name in numbers:
            numbers[name] = [number for number in numbers[name] if number <= most]
    drawn = []
    for _ in range(ATTACKS):
        length = draw.choice(("max_frames", "max_seconds"))  # give one of the two
        names = [
            name for name in numbers if draw.random() < 0.8 and name not in ("max_frames", "max_seconds")
        ]
        drawn.append({name: draw.choice(numbers[name]) for name in (*names, length) if numbers[name]})
    return drawn


def spoken(
    session: Session, asked: list[Any], others: list[Any]
) -> tuple[list[GenerationResult], list[Exception]]:
    """Speak all of `asked`, while `others` join as places become free, and leave again after a while.

    Returns the speeches and the errors of others.
    """
    draw = random.Random(0)
    keys, waiting = [session.join(one) for one in asked], [*others]
    parts: dict[int, list[GenerationResult]] = {key: [] for key in keys}
    guests, errors, ended = dict[int, int](), list[Exception](), 0
    while ended < len(asked) or waiting or guests:
        while waiting and session.running < PLACES:
            one = waiting.pop()
            try:
                if session.fits(one):
                    guests[session.join(one)] = draw.choice((3, 9, 50))
            except (UsageError, ResourceError) as error:
                errors.append(error)
        for event in session.step():
            if isinstance(event, Failed):
                assert event.key in guests, event
                errors.append(event.error)
                del guests[event.key]
            elif event.key in parts:
                parts[event.key].append(event.result)
                ended += event.result.is_final_chunk
            elif event.result.is_final_chunk:
                del guests[event.key]
        for key in [*guests]:
            guests[key] -= 1
            if not guests[key]:
                session.leave(key)
                del guests[key]
    return [join(parts[key]) for key in keys], errors


@every_model
@every_side
def test_numbers_of_one_request_harm_no_other(model: str, side: str) -> None:
    """Four requests keep their codes and samples exactly while others of any accepted numbers come and go."""
    loaded = speaker(model, side)
    asked = [request(loaded, model, place, seed=place, **PLAIN[model]) for place in range(4)]
    session = loaded.session(PLACES)
    expected, _ = spoken(session, asked, [])
    session.close()
    others, refused = [], 0
    for place, changes in enumerate(attacks(model, side)):
        try:
            others.append(request(loaded, model, place, **changes))
        except (UsageError, ResourceError):
            refused += 1
    assert len(others) > ATTACKS / 4, refused
    session = loaded.session(PLACES)
    found, errors = spoken(session, asked, others)
    session.close()
    for one, other in zip(found, expected, strict=True):
        assert_exact(one, other)
    assert len(errors) < len(others) / 2, errors


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
    return [join(list(one)) for one in asked]


@every_model
@every_side
def test_numbers_of_a_servers_requests(
    model: str, side: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a server runs: four are exact, and no request ends with an error of the batch."""
    ended, running, long = list[Ended](), list[Speech](), list[Speech]()
    values = {name: at_the_doors(model, name, 60, tmp_path) for name in numeric_options(model)}
    others = random.Random(f"{model} {side}").sample([*every_attack(model, values)], SUBMITTED)
    options = [{"seed": place, **PLAIN[model]} for place in range(4)]
    engine = SpeechEngine({model: source(model, side)}, places=PLACES + 2, on_end=ended.append)
    engine.start()
    try:
        assert engine.wait_ready(SOON)
        expected = heard([engine.submit(**given(model, *one)) for one in enumerate(options)])
        four = [engine.submit(**given(model, *one)) for one in enumerate(options)]
        for one in others:
            with suppress(UsageError, ResourceError):
                speech = engine.submit(**given(model, one.place, one.options))
                (long if one.drawn.keys() & {*APART} else running).append(speech)
        for found, other in zip(heard(four, long), expected, strict=True):
            assert_exact(found, other)
        for speech in running:
            with suppress(UsageError, ResourceError):
                assert join(list(speech)).finish_reason in ("stop", "length")
    finally:
        engine.close(SOON)
    assert {one.outcome for one in ended} <= {"stop", "length", "cancelled", "UsageError", "ResourceError"}
    last = max(one.ended or 0 for one in four)
    assert sum((one.started or last) < last for one in (*running, *long)) > SUBMITTED / 4
    assert not caplog.records
