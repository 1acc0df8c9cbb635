"""Dia's running batch: the sound of a request does not depend on its neighbors, whoever comes and goes."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.sides import SIDES
from tests.tiny.dia import compose, dac_config, dac_weights, dia_config, dia_weights
from tests.tiny.recordings import snippet
from tts_core.codecs.dac_calls import Passage
from tts_core.dia.options import DiaOptions
from tts_core.results import GenerationResult, join
from tts_core.serving.session import Failed, Part

WORDS = ("inn", "near", "then", "thin", "out", "pine", "hide", "an", "old", "tin", "mine")
every_side = pytest.mark.parametrize("side", list(SIDES))


@cache
def pipeline(side: str, cross_rope: bool = False) -> Any:
    """A Dia whose pieces end early, in float32."""
    config = dia_config(positions=400, text_positions=300, cross_rope=cross_rope)
    return compose(SIDES[side], dia_weights(config, seed=3, eos=1.3), dac_weights(dac_config()))


@cache
def requests(side: str) -> list[Any]:
    """Short and long texts, in pieces and with pauses, with and without a voice, of several settings."""
    random, found = np.random.default_rng(7), []
    hop = pipeline(side).codec_config.hop_length
    for place in range(18):
        words = " ".join(random.choice(WORDS, int(random.integers(2, 9))))
        text = f"[S1] {words}."
        changes: dict[str, Any] = {"max_frames": int(random.integers(12, 60))}
        voice = None
        if place % 4 == 1:
            audio = random.normal(scale=0.1, size=9 * hop).astype(np.float32)
            voice = snippet(audio, "[S1] An inn.")
        if place % 6 == 2:
            text, changes = f"{text} [pause:0.05] [S2] {words}!", {}
        if place % 5 == 3:
            changes |= {"temperature": 0.7, "cfg_scale": 1.5, "top_k": 9, "top_p": 1.0}
        if place % 8 == 7:
            changes |= {"cfg_scale": 0.0, "temperature": 0.0}
        found.append(pipeline(side).request(text, DiaOptions(seed=place, **changes), voice))
    return found


def served(side: str, asked: list[Any], *, places: int, seed: int) -> list[GenerationResult]:
    """Speak requests that arrive at random moments; some others come along and leave again, unfinished."""
    random, session = np.random.default_rng(seed), pipeline(side).session(places)
    waiting, keys, strangers = list(range(len(asked))), {}, set()
    parts: dict[int, list[GenerationResult]] = {place: [] for place in waiting}
    while waiting or session.running:
        for stranger in [key for key in strangers if random.random() < 0.1]:
            session.leave(stranger)
            strangers.discard(stranger)
        if random.random() < 0.2 and session.fits(asked[0]):
            strangers.add(session.join(asked[int(random.integers(len(asked)))]))
        while waiting and random.random() < 0.5 and session.fits(asked[waiting[0]]):
            place = waiting.pop(0)
            keys[session.join(asked[place])] = place
        for event in session.step():
            assert isinstance(event, Part), event
            if event.key in keys:
                parts[keys[event.key]].append(event.result)
            elif event.result.is_final_chunk:
                strangers.discard(event.key)
    session.close()
    return [join(parts[place]) for place in range(len(asked))]


@cache
def alone(side: str) -> list[GenerationResult]:
    return [join(list(pipeline(side).speak(one))) for one in requests(side)]


@every_side
@pytest.mark.parametrize("places", [2, 5])
def test_codes_are_those_of_the_request_alone(side: str, places: int) -> None:
    """Also of long texts, whose later pieces continue the first; captions and ends are equal, too."""
    found = served(side, requests(side), places=places, seed=places)
    for place, (one, expected) in enumerate(zip(found, alone(side), strict=True)):
        np.testing.assert_array_equal(one.codes, expected.codes, err_msg=f"request {place}")
        assert (one.finish_reason, one.cues) == (expected.finish_reason, expected.cues)
        assert (one.seed, len(one.audio)) == (expected.seed, len(expected.audio))
        assert [piece.text for piece in one.pieces] == [piece.text for piece in expected.pieces]
        assert one.token_count == expected.token_count


@every_side
def test_sound_is_decoded_in_windows_that_depend_on_the_request_only(side: str) -> None:
    """Sample by sample: on a CPU each window is a call of its own."""
    engine = pipeline(side).engine
    for one, asked in zip(served(side, requests(side), places=5, seed=1), requests(side), strict=True):
        if len(asked.pieces) > 1:
            continue
        stops, frames = [0], one.codes.shape[1]
        while stops[-1] < frames:
            stops.append(min(frames, engine.policy.served_stop(stops[-1])))
        passages = [Passage(one.codes, *cut) for cut in pairwise(stops)]
        np.testing.assert_array_equal(one.audio, np.concatenate(engine.decode_windows(passages)))


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
    rows = engine.policy.first_frames + session.lookahead + engine.config.longest_delay
    assert steps <= rows + 2  # a step is submitted ahead


@every_side
def test_a_fault_ends_its_own_request_only(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = pipeline(side).session(2)
    bad, good = (session.join(one) for one in requests(side)[4:6])
    slots = session.turns.slots
    read = slots.read

    def broken(launched: Any) -> np.ndarray:
        rows = read(launched).copy()
        rows[:, 0] = -1
        return rows

    monkeypatch.setattr(slots, "read", broken)
    monkeypatch.setattr(session.engine, "fault", lambda *given, **options: RuntimeError("not finite"))
    found: dict[int, list[Any]] = {bad: [], good: []}
    while session.running:
        for event in session.step():
            found[event.key].append(event)
    [failed] = found[bad]
    assert isinstance(failed, Failed)
    codes = np.concatenate([event.result.codes for event in found[good]], axis=1)
    np.testing.assert_array_equal(codes, alone(side)[5].codes)
