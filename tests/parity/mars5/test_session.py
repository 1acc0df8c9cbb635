"""Requests in a running batch say what they say by themselves, whoever else is served; on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.contract.arrivals import serve
from tests.contract.speakers import to_end
from tests.sides import SIDES
from tests.tiny.mars5 import CODES, LONG, SAID, TEXT, limit, pipeline, voice
from tts_core.errors import ResourceError, UsageError
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.request import Mars5Request
from tts_core.prompt import Prompt
from tts_core.results import merge
from tts_core.serving.session import Failed

pytestmark = pytest.mark.rest

every_side = pytest.mark.parametrize("side", SIDES)


def asked(side: str, seed: int, **changes: Any) -> Mars5Request:
    """A request with a voice, a length and settings of its own."""
    random = np.random.default_rng(seed)
    ids, text, said = int(random.integers(2, 14)), TEXT, None
    given: dict[str, Any] = {"seed": seed, "timesteps": int(random.integers(1, 5))}
    codes = CODES[:, : int(random.integers(3, 9))]
    match int(random.integers(0, 5)):
        case 0:
            text, given["piece_seconds"] = LONG, 2.0
        case 1:
            said = SAID
        case 2:
            given |= {"cfg_scale": 1.0, "temperature": 0.0, "max_frames": int(random.integers(1, 9))}
        case 3:
            given |= {"top_k": 0, "top_p": 0.9, "rep_penalty_window": 5, "draws": "per class"}
    given["generate_max_len_override"] = limit(text, ids, said, codes)
    prompt = codes if said is None else Prompt.of(codes=codes, text=said)
    return pipeline(side).request(text, Mars5Options(**given | changes), prompt)


@pytest.fixture
def begun(side: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Diffusions of a side, as they begin."""
    runs, begin = list[Any](), pipeline(side).engine.begin

    def watched(*given: Any) -> Any:
        runs.append(begin(*given))
        return runs[-1]

    monkeypatch.setattr(pipeline(side).engine, "begin", watched)
    return runs


@every_side
def test_diffusions_run_one_by_one(side: str, begun: list[Any]) -> None:
    """None starts before: the memory of one is enough. The first steps of ids go on beside it."""
    session, order = pipeline(side).session(4), list[int]()
    keys = [session.join(asked(side, seed, timesteps=4)) for seed in (3, 5, 6, 7)]
    while session.running:
        order += [event.key for event in session.step()]
        assert sum(not run.done for run in begun) <= 1
    assert sorted(order) == keys
    assert len(begun) == 4


@every_side
def test_a_diffusion_that_is_left_or_fails_lets_the_next_begin(side: str, begun: list[Any]) -> None:
    """One is cancelled, one computes NaN; the third one's codes are those that it has by itself."""
    session, requests = pipeline(side).session(4), [asked(side, 5, timesteps=4) for _ in range(3)]
    cancelled, broken, fine = (session.join(request) for request in requests)
    while not begun:
        assert session.step() == []
    session.leave(cancelled)
    while len(begun) < 2:
        assert session.step() == []
    begun[1].denoise.finite = begun[1].denoise.finite & False
    events = [*to_end(session)]
    assert [run.done for run in begun] == [False, True, True]
    [failed, said] = events
    assert isinstance(failed, Failed)
    assert "NaN or infinite" in str(failed.error)
    assert (failed.key, said.key) == (broken, fine)
    alone = merge(list(pipeline(side).speak(requests[2])))
    np.testing.assert_array_equal(said.result.codes, alone.codes)
    assert session.promised == 0


@every_side
def test_a_recording_is_encoded_with_the_next_step(side: str) -> None:
    """Also the check that needs its codes: whether a deep clone leaves room."""
    session, text = pipeline(side).session(2), "A small green kettle."
    most = limit(text, 12, SAID, np.zeros((8, 200), np.int32))
    options = Mars5Options(seed=1, timesteps=2, generate_max_len_override=most)
    request = pipeline(side).request(text, options, voice(said=SAID))
    [result] = serve(session, [request], seed=0).values()
    np.testing.assert_array_equal(result.codes, merge(list(pipeline(side).speak(request))).codes)
    short = Mars5Options(seed=1, generate_max_len_override=limit(text, 1, SAID, CODES[:, :1]))
    session.join(pipeline(side).request(text, short, voice(said=SAID)))
    [event] = session.step()
    assert isinstance(event, Failed)
    assert isinstance(event.error, UsageError)
    assert str(event.error).startswith("text: reference and text take")
    assert session.waiting


@every_side
def test_a_request_that_fails_leaves_the_others_alone(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its diffusion finds no memory."""
    session, fine, large = pipeline(side).session(2), asked(side, 5), asked(side, 3)
    keys, events = [session.join(large), session.join(fine)], []
    checked: list[Any] = []

    def check(job: Any) -> None:
        checked.append(job)
        if len(checked) == 1:
            raise ResourceError("memory: too little")

    monkeypatch.setattr(session.net, "check_beside", check)
    events += to_end(session)
    failed = [event for event in events if isinstance(event, Failed)]
    assert len(failed) == 1
    [other] = [request for request, key in zip((large, fine), keys, strict=True) if key != failed[0].key]
    alone = merge(list(pipeline(side).speak(other)))
    heard = merge([event.result for event in events if not isinstance(event, Failed)])
    np.testing.assert_array_equal(heard.codes, alone.codes)


@every_side
def test_a_request_that_is_longer_than_a_row(side: str) -> None:
    request = asked(side, 5, generate_max_len_override=2001)
    with pytest.raises(UsageError, match="generate_max_len_override: 2001 ids; a running batch keeps 2000"):
        pipeline(side).session(1).fits(request)
