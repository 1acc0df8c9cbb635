"""Whatever numbers a request's options have, the speech of others stays as it is."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.contract.speakers import SMALL, every_model, every_side, speaker
from tests.json_numbers import accepted
from tests.parity.recorded_runs import DEEP, FIRST, VOICE
from tts_core.errors import ResourceError, UsageError
from tts_core.options import options_class, single_values
from tts_core.results import GenerationResult, join
from tts_core.serving.session import Failed, Session

pytestmark = pytest.mark.rest

NUMBERS = 400  # drawn for each option; tests/tts_core/test_options.py checks 2,000
ATTACKS = 60  # requests, each with a random accepted number for most options
PLACES = 6
TEXTS = ("The inn is near.", "Then it thins out.", "There it ends!", "An old tin mine.")
PLAIN: dict[str, dict[str, Any]] = {
    "dia": {"max_frames": 60},
    "dia2": {"max_frames": 60},
    "mars5": {"timesteps": 3, "generate_max_len_override": 120, "max_frames": 40},
    "metavoice": {"max_frames": 40},
    "qwen3": {"max_frames": 40},
}
PROMPTS: dict[str, tuple[Any, ...]] = {
    "dia": (None,),
    "dia2": (None,),
    "mars5": (VOICE, DEEP),
    "metavoice": (FIRST,),
    "qwen3": SMALL["qwen3"].voices,
}
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
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_array_equal(one.audio, other.audio)
    assert len(errors) < len(others) / 2, errors
