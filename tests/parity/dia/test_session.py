"""Dia's running batch: the sound of a request does not depend on its neighbors, whoever comes and goes."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.hosts import Late, LateStream
from tests.sides import SIDES
from tests.tiny.dia import compose
from tests.tiny.dia_served import decoded_apart, requests, served
from tests.tiny.networks import dia_config, tiny
from tests.tiny.noise import CountingNoise
from tts_core.codecs.dac_calls import Passage
from tts_core.codecs.policy import CodecPolicy
from tts_core.dia.long_text import DiaPieces
from tts_core.dia.options import DiaOptions
from tts_core.errors import UsageError
from tts_core.nn.noise import piece_seed
from tts_core.results import GenerationResult, join
from tts_core.serving.session import Failed, Part

pytestmark = pytest.mark.rest

every_side = pytest.mark.parametrize("side", list(SIDES))
PAUSED = "[S1] The inn is near. [pause:0.2] [S2] There it ends!"
UNHEARD: list[tuple[str, dict[str, Any]]] = [
    ("[S1] An old inn, near the pine.", {"seed": 1, "max_frames": 57}),
    ("[S1] " + "an inn " * 20, {"seed": 4, "max_frames": 72}),
    ("[S1] A mine.", {"seed": 2, "max_frames": 11}),
    (PAUSED, {"seed": 3}),
]


@cache
def pipeline(side: str, cross_rope: bool = False) -> Any:
    """A Dia whose pieces end early, in float32."""
    config = dia_config(positions=400, text_positions=300, cross_rope=cross_rope)
    return compose(SIDES[side], tiny(config, seed=3, eos=1.3), tiny("dac"))


@cache
def asked(side: str) -> list[Any]:
    return requests(pipeline(side))


@cache
def alone(side: str) -> list[GenerationResult]:
    return [join(list(pipeline(side).speak(one))) for one in asked(side)]


@every_side
def test_sound_is_decoded_in_windows_that_depend_on_the_request_only(side: str) -> None:
    """Sample by sample: on a CPU each window is a call of its own."""
    engine = pipeline(side).engine
    for one, request in zip(served(pipeline(side), asked(side), places=5, seed=1), asked(side), strict=True):
        if len(request.pieces) > 1:
            continue
        stops, frames = [0], one.codes.shape[1]
        while stops[-1] < frames:
            stops.append(min(frames, engine.policy.served_stop(stops[-1])))
        passages = [Passage(one.codes, *cut) for cut in pairwise(stops)]
        np.testing.assert_array_equal(one.audio, np.concatenate(decoded_apart(engine, passages)))


@every_side
def test_without_listeners_the_sound_is_that_of_generate(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample by sample, of one piece and of several, in windows of 24 frames at most."""
    engine, fed = pipeline(side).engine, []
    monkeypatch.setattr(engine.codec, "policy", CodecPolicy(max_frames=24, first_frames=3))
    expected = [pipeline(side).generate(text, **changes) for text, changes in UNHEARD]
    launch = engine.launch

    def noted(windows: Any, policy: Any) -> Any:
        fed.extend(window.codes.shape[1] for window in windows)
        return launch(windows, policy)

    monkeypatch.setattr(engine, "launch", noted)
    requests = [pipeline(side).request(text, DiaOptions(**changes)) for text, changes in UNHEARD]
    found = served(pipeline(side), requests, places=3, seed=2, streamed=False)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_array_equal(one.audio, other.audio)
        assert (one.cues, one.finish_reason) == (other.cues, other.finish_reason)
    assert max(fed) == 24
    rooms = [pipeline(side).session(1, streamed=streamed).admission for streamed in (True, False)]
    assert [room.policy for room in rooms] == [engine.policy, engine.policy.unheard()], "of the memory plan"
    whole = sum(one.codes.shape[1] for one in found[:3])
    assert whole > 3 * 24, "some have several windows"


@every_side
def test_the_first_part_is_small(side: str) -> None:
    """Its frames are the policy's first window; it comes as soon as they are final."""
    session, engine = pipeline(side).session(2), pipeline(side).engine
    session.join(pipeline(side).request("[S1] " + "an inn " * 20, DiaOptions(seed=4, max_frames=50)))
    steps, events = 0, []
    while not events:
        steps, events = steps + 1, session.step()
    [first] = events
    assert isinstance(first, Part)
    assert first.result.codes.shape[1] == engine.policy.first_frames
    rows = engine.policy.first_frames + engine.lookahead + engine.config.longest_delay
    assert steps <= rows + 2  # a step is submitted ahead


class OnCuda(LateStream):
    """A host whose codec's streams share calls beside the steps."""

    backend = "torch-cuda"


def test_streams_share_calls_beside_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the rehearsed shapes only; texts sound as alone, up to rounding."""
    side = next(iter(SIDES))
    engine, expected, shapes = pipeline(side).engine, alone(side), list[tuple[int, int]]()
    decode_piece = engine._decode_piece

    def noted(codes: Any, *given: Any) -> Any:
        shapes.append((codes.shape[0], codes.shape[2]))
        return decode_piece(codes, *given)

    monkeypatch.setattr(engine, "_decode_piece", noted)
    monkeypatch.setattr(engine, "host", OnCuda(engine.host))
    policy = engine.windows(None, streamed=True)
    engine.prepare(policy, 5)
    rehearsed = [*shapes]
    assert len(rehearsed) == 2 * len({*rehearsed})
    for one, other in zip(served(pipeline(side), asked(side), places=5, seed=1), expected, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_allclose(one.audio, other.audio, rtol=0, atol=1e-3)
    used = shapes[len(rehearsed) :]
    assert {*used} <= {*rehearsed}
    assert max(rows for rows, _ in used) > 1


def paused(side: str, **options: Any) -> Any:
    return pipeline(side).request(PAUSED, DiaOptions(**options))


@every_side
def test_the_next_piece_begins_before_the_sound_of_the_one_before(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the device decodes beside the steps, and late; the speech is the same."""
    [expected] = served(pipeline(side), [paused(side, seed=3)], places=8, seed=1)
    monkeypatch.setattr(pipeline(side).engine, "host", LateStream(pipeline(side).engine.host))
    monkeypatch.setattr(Late, "ready", lambda _: False)
    sources = [CountingNoise(piece_seed(3, place)) for place in range(2)]
    session, parts = pipeline(side).session(8), list[GenerationResult]()
    session.join(paused(side, noise=sources))
    began = False
    while session.running:
        for event in session.step():
            assert isinstance(event, Part)
            parts.append(event.result)
        began = began or (bool(sources[1].steps) and not any(part.pieces for part in parts))
    session.close()
    assert began
    found = join(parts)
    np.testing.assert_array_equal(found.codes, expected.codes)
    np.testing.assert_array_equal(found.audio, expected.audio)
    assert (found.cues, found.token_count) == (expected.cues, expected.token_count)
    for one, other in zip(found.pieces, expected.pieces, strict=True):
        np.testing.assert_array_equal(one.audio, other.audio)
        assert (one.text, one.max_frames) == (other.text, other.max_frames)


@every_side
def test_an_error_of_a_later_piece_follows_what_was_spoken(
    side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = DiaPieces.request

    def refused(text: DiaPieces, place: int) -> Any:
        if place:
            raise UsageError("text: refused")
        return build(text, place)

    monkeypatch.setattr(DiaPieces, "request", refused)
    session, events = pipeline(side).session(2), list[Any]()
    session.join(paused(side, seed=3))
    while session.running:
        events += session.step()
    *parts, failed = events
    session.close()
    assert isinstance(failed, Failed)
    assert str(failed.error) == "text: refused"
    [spoken] = [piece for part in parts for piece in part.result.pieces]
    assert spoken.text == "[S1] The inn is near."
    assert len(spoken.audio) > 0
