"""Requests in a running batch say what they say by themselves, whoever else is served; on both sides."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.contract.arrivals import serve
from tests.contract.speakers import assert_same
from tests.tiny.mars5 import CODES, LONG, SAID, TEXT, limit, pipeline, voice
from tests.windows import Windows
from tts_core.codecs import vocos_calls
from tts_core.errors import ResourceError, UsageError
from tts_core.mars5 import together
from tts_core.mars5.options import Mars5Options
from tts_core.mars5.request import STAGES, Mars5Request
from tts_core.prompt import Prompt
from tts_core.results import join
from tts_core.serving.session import Failed

pytestmark = pytest.mark.rest

WINDOWS = Windows("mars5", partial(pipeline, "torch"))
SIDES = pytest.mark.parametrize("side", ["torch", "mlx"])


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
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let diffusions share calls, and pieces that end together the vocoder's, as on a GPU."""
    monkeypatch.setattr(together, "ONE_BY_ONE", ())
    monkeypatch.setattr(vocos_calls, "ONE_BY_ONE", ())


@SIDES
@pytest.mark.usefixtures("shared")
def test_requests_whose_diffusions_share_calls_come_and_go(side: str) -> None:
    """These seeds have no near-tie; tests/parity/mars5/test_together.py counts them."""
    requests = [asked(side, seed) for seed in range(12)]
    spoken = serve(pipeline(side).session(4), requests, seed=4, leaving=0.005)
    assert len(spoken) >= 8
    for place, result in spoken.items():
        assert_same(result, join(list(pipeline(side).speak(requests[place]))), windows=WINDOWS)
        assert list(result.stage_seconds) == list(STAGES)
        assert min(result.stage_seconds["AR"], result.stage_seconds["NAR"]) > 0


@SIDES
def test_the_diffusion_that_began_first_ends_first(side: str) -> None:
    """On a CPU none starts before: the memory of one is enough."""
    session, order = pipeline(side).session(4), list[int]()
    for seed in (3, 5, 6, 7):
        session.join(asked(side, seed, timesteps=4))
    begun: list[int] = []
    while session.running:
        order += [event.key for event in session.step()]
        queue = session.diffusions.queue
        begun += [each.owner.key for each in queue if each.owner.key not in begun]
        assert sum(each.run is not None for each in queue) <= 1
    assert order == begun
    assert len(order) == 4


@SIDES
@pytest.mark.usefixtures("shared")
def test_diffusions_share_a_call_and_leave_it_at_once(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is cancelled, one computes NaN; the third one's codes are those that it has by itself."""
    sizes, engine = list[int](), pipeline(side).engine
    make = engine.together
    monkeypatch.setattr(engine, "together", lambda runs: sizes.append(len(runs)) or make(runs))
    session, requests = pipeline(side).session(4), [asked(side, 5, timesteps=4) for _ in range(3)]
    cancelled, broken, fine = (session.join(request) for request in requests)
    while not sizes:
        assert session.step() == []
    session.leave(cancelled)
    run = session.diffusions.queue[0].run
    run.finite = run.finite & False
    events = []
    while session.running:
        events += session.step()
    assert sizes == [3, 2]
    [failed, said] = events
    assert isinstance(failed, Failed)
    assert "NaN or infinite" in str(failed.error)
    assert (failed.key, said.key) == (broken, fine)
    alone = join(list(pipeline(side).speak(requests[2])))
    np.testing.assert_array_equal(said.result.codes, alone.codes)
    assert session.promised == 0


@SIDES
@pytest.mark.usefixtures("shared")
def test_pieces_that_end_together_share_the_vocoder(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None waits for another; windows of equal length are one call."""
    decoded, vocoder = list[int](), pipeline(side).engine.vocoder
    decode = vocoder.decode_frames

    def counted(codes: Any, *rest: Any) -> Any:
        decoded.append(len(codes))
        return decode(codes, *rest)

    requests = [asked(side, 5, timesteps=steps) for steps in (3, 3, 6)]
    alone = [join(list(pipeline(side).speak(request))) for request in requests]
    session = pipeline(side).session(4)
    places = {session.join(request): place for place, request in enumerate(requests)}
    monkeypatch.setattr(vocoder, "decode_frames", counted)
    while session.running:
        for event in session.step():
            expected = alone[places[event.key]]
            np.testing.assert_array_equal(event.result.codes, expected.codes)
            WINDOWS.assert_same(event.result, expected)
    assert decoded == [2, 1]


@SIDES
def test_a_recording_is_encoded_when_its_request_joins(side: str) -> None:
    """Also the check that needs its codes: whether a deep clone leaves room."""
    session, text = pipeline(side).session(2), "A small green kettle."
    most = limit(text, 12, SAID, np.zeros((8, 200), np.int32))
    options = Mars5Options(seed=1, timesteps=2, generate_max_len_override=most)
    request = pipeline(side).request(text, options, voice(said=SAID))
    [result] = serve(session, [request], seed=0).values()
    np.testing.assert_array_equal(result.codes, join(list(pipeline(side).speak(request))).codes)
    short = Mars5Options(seed=1, generate_max_len_override=limit(text, 1, SAID, CODES[:, :1]))
    with pytest.raises(UsageError, match="reference and text take"):
        session.join(pipeline(side).request(text, short, voice(said=SAID)))
    assert session.waiting


@SIDES
def test_a_request_that_fails_leaves_the_others_alone(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its diffusion finds no memory."""
    session, fine, large = pipeline(side).session(2), asked(side, 5), asked(side, 3)
    keys, events = [session.join(large), session.join(fine)], []
    checked: list[int] = []

    def check(needed: int) -> None:
        checked.append(needed)
        if len(checked) == 1:
            raise ResourceError("memory: too little")

    monkeypatch.setattr(session, "check_memory", check)
    while session.running:
        events += session.step()
    failed = [event for event in events if isinstance(event, Failed)]
    assert len(failed) == 1
    [other] = [request for request, key in zip((large, fine), keys, strict=True) if key != failed[0].key]
    alone = join(list(pipeline(side).speak(other)))
    heard = join([event.result for event in events if not isinstance(event, Failed)])
    np.testing.assert_array_equal(heard.codes, alone.codes)


@SIDES
def test_a_request_that_is_longer_than_a_row(side: str) -> None:
    request = asked(side, 5, generate_max_len_override=2001)
    with pytest.raises(UsageError, match="generate_max_len_override: 2001 ids; a running batch keeps 2000"):
        pipeline(side).session(1).join(request)
