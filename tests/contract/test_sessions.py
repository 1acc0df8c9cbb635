"""Sessions of every model on both sides: the speech of a request does not depend on its neighbors."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.contract.arrivals import serve
from tests.contract.speakers import (
    SENTENCES,
    SMALL,
    TEXTS,
    alone,
    assert_same,
    every_model,
    every_side,
    fed,
    given,
    mixed,
    request,
    running_batch,
    speaker,
    spoken,
    to_end,
    windows,
)
from tests.metal_errors import INTERACTIVITY, LARGER, MESSAGES
from tests.parity.recorded_runs import speech
from tests.parity.stand_ins import Standing
from tests.tiny.recordings import snippet
from tts_core.errors import ResourceError, UsageError
from tts_core.nn.guard import NotFiniteError
from tts_core.prompt import Prompt
from tts_core.results import GenerationResult, merge
from tts_core.serving.session import Failed, Part

# rows before the fifth read, with those of the prompt where it has rows
ROWS = {"dia": 5, "dia2": 5, "mars5": 4, "metavoice": 10, "qwen3": 13}


@cache
def asked(model: str, side: str) -> list[Any]:
    return mixed(model, side)


@cache
def expected(model: str, side: str) -> list[GenerationResult]:
    return [alone(model, side, one) for one in asked(model, side)]


@every_model
@every_side
@pytest.mark.parametrize(("places", "leaving"), [(2, 0.01), (5, 0.0)])
def test_requests_come_and_go(model: str, side: str, places: int, leaving: float) -> None:
    """Other texts, voices, settings, speeds and pieces; some leave unfinished."""
    session = speaker(model, side).session(places)
    found = serve(session, asked(model, side), seed=places, leaving=leaving)
    assert len(found) == len(asked(model, side)) if not leaving else found
    for place, result in found.items():
        assert_same(result, expected(model, side)[place], windows=windows(model))
    session.close()


@every_model
@every_side
def test_without_listeners_a_session_speaks_as_generate(model: str, side: str) -> None:
    """Sample by sample: its codec has the same windows."""
    session, texts = speaker(model, side).session(2, streamed=False), (TEXTS[0], TEXTS[1])
    found = spoken(session, *(request(model, side, text, seed=3) for text in texts))
    for text, result in zip(texts, found, strict=True):
        assert_same(result, speaker(model, side).generate(text, seed=3, **given(model)))


@pytest.mark.parametrize("model", ["dia", "dia2", "qwen3"])  # whose codec decodes while a piece is drawn
@every_side
def test_the_first_part_is_small_and_early(model: str, side: str) -> None:
    """It is the policy's first window, as soon as its frames are final."""
    session, engine, steps, events = speaker(model, side).session(2), speaker(model, side).engine, 0, []
    session.join(request(model, side, TEXTS[0], seed=4))
    while not events:
        steps, events = steps + 1, session.step()
    assert events[0].result.codes.shape[1] == engine.policy.first_frames
    behind = getattr(engine, "lookahead", 0) + getattr(engine.config, "longest_delay", 0)
    assert steps <= engine.policy.first_frames + behind + 2  # a step is submitted ahead
    session.close()


@every_model
@every_side
def test_the_rehearsal_gives_sound(model: str, side: str) -> None:
    """A short request; `close` leaves nothing behind."""
    session = speaker(model, side).session(2)
    [warm] = spoken(session, session.rehearsal())
    assert 0 < warm.codes.shape[1] <= 40
    session.join(session.rehearsal())
    session.close()
    assert session.running == 0


@every_model
@every_side
def test_one_who_leaves_frees_its_place_before_the_next_step(model: str, side: str) -> None:
    session, one = speaker(model, side).session(1), request(model, side, TEXTS[0], seed=3)
    assert session.waiting
    key = session.join(request(model, side, TEXTS[1]))
    assert not session.waiting
    session.step()
    assert not session.fits(one)
    for _ in range(2):  # a second time does nothing
        session.leave(key)
    assert (session.running, session.promised) == (0, 0)
    assert session.fits(one)
    [result] = spoken(session, one)
    assert_same(result, alone(model, side, one), windows=windows(model))


@every_model
@every_side
def test_admission_follows_the_memory_plan(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is promised its memory; a request that never fits is refused."""
    pipeline, one = speaker(model, side), request(model, side, TEXTS[0])
    session = pipeline.session(4)
    assert session.fits(one)
    session.join(one)
    assert session.promised > 0
    session.close()
    monkeypatch.setattr(type(pipeline.engine.host), "free_bytes", lambda *_: 1000)
    with pytest.raises(ResourceError, match="memory"):
        pipeline.session(4).fits(one)


@pytest.mark.parametrize("model", ["mars5", "metavoice"])
@every_side
def test_a_request_is_admitted_to_the_byte(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where requests are counted one by one; a batch that has no place is not opened."""
    pipeline, one = speaker(model, side), request(model, side, TEXTS[0], seed=5)
    session, host = pipeline.session(8), type(pipeline.engine.host)
    assert session.places == 8
    session.join(one)
    needed = session.promised
    monkeypatch.setattr(host, "free_bytes", lambda _: needed + 10)
    assert session.fits(one, promised=10)
    assert not session.fits(one, promised=11)
    monkeypatch.setattr(host, "free_bytes", lambda _: needed - 1)
    with pytest.raises(ResourceError, match=r"one text of .* take"):
        session.fits(one)
    monkeypatch.setattr(host, "free_bytes", lambda _: 1000)
    with pytest.raises(ResourceError, match=r"^memory: .* takes? .* are free"):
        pipeline.session(3)


@every_model
@every_side
def test_a_fault_ends_its_own_request_only(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slot's logits are not finite in the fifth read."""
    session, reads = speaker(model, side).session(2), []
    bad, good = (session.join(asked(model, side)[place]) for place in (0, 1))
    slots = running_batch(session)
    read = slots.read

    def broken(launched: Any) -> Any:
        found = read(launched)
        reads.append(found)
        if len(reads) == 5:
            found = found.copy()
            found[:, 0] = -1
        return found

    monkeypatch.setattr(slots, "read", broken)
    found: dict[int, list[Any]] = {bad: [], good: []}
    for event in to_end(session):
        found[event.key].append(event)
    failed = found[bad][-1]
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, NotFiniteError)
    assert failed.error.row == ROWS[model]
    assert all(isinstance(event, Part) for event in found[bad][:-1])
    assert_same(
        merge([event.result for event in found[good]]), expected(model, side)[1], windows=windows(model)
    )


@every_model
@every_side
def test_text_that_goes_on_is_only_for_models_that_are_fed(model: str, side: str) -> None:
    session, one = speaker(model, side).session(1), request(model, side, TEXTS[0])
    if model in fed:
        session.leave(session.join(one, more=True))
    else:
        with pytest.raises(UsageError, match="reads its text at once"):
            session.join(one, more=True)
    assert session.waiting


@pytest.mark.parametrize("model", fed)
@every_side
@pytest.mark.parametrize("cut", [1, 9])
def test_text_that_is_fed_is_the_same_speech(model: str, side: str, cut: int) -> None:
    """Beside a neighbor that has all of its text; steps are withheld until their words are there."""
    session, whole = speaker(model, side).session(2), {"max_frames": 90}
    key = session.join(request(model, side, SENTENCES[:15], seed=3, **whole), more=True)
    other = session.join(asked(model, side)[0])
    pieces = [SENTENCES[start : start + cut] for start in range(15, len(SENTENCES), cut)]
    parts: dict[int, list[GenerationResult]] = {key: [], other: []}
    waited = False
    while session.running:
        for event in session.step():
            assert isinstance(event, Part), event
            parts[event.key].append(event.result)
        while session.waiting and session.running:
            waited = True
            if pieces:
                session.feed(key, pieces.pop(0))
            else:
                session.end(key)
    assert waited
    assert_same(
        merge(parts[key]),
        alone(model, side, request(model, side, SENTENCES, seed=3, **whole)),
        windows=windows(model),
    )
    assert_same(merge(parts[other]), expected(model, side)[0], windows=windows(model))


@every_model
def test_both_sides_say_the_same(model: str) -> None:
    for one, other in zip(expected(model, "torch"), expected(model, "mlx"), strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        assert one.captions().vtt() == other.captions().vtt()


def test_settings_matter() -> None:
    """Requests of a batch that differ in their options differ in their speech."""
    for model, small in SMALL.items():
        first = expected(model, "torch")[0]
        for place in range(1, 2 + len(small.settings)):
            other = expected(model, "torch")[place]
            assert first.codes.shape != other.codes.shape or (first.codes != other.codes).any()


ENCODERS = {"metavoice": "speaker"}  # of recordings; of others "encode"


def recording(model: str) -> Any:
    """A voice that a network reads."""
    if model == "mars5":
        return snippet(speech(2.0, 24_000))
    if model == "metavoice":
        return Prompt.of(audio=speech(3.0, 24_000))
    return SMALL[model].voices[-1]


def encoder(model: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Count the calls of the network that reads recordings; it raises `error` if there is one."""
    engine, name = speaker(model, "torch").engine, ENCODERS.get(model, "encode")
    standing = Standing(getattr(engine, name))
    monkeypatch.setattr(engine, name, standing)
    return standing


@every_model
def test_a_recording_is_encoded_between_two_steps_and_no_other(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While others are spoken; joining waits for no network."""
    session, standing = speaker(model, "torch").session(3), encoder(model, monkeypatch)
    session.join(session.rehearsal())
    while not session.slots.can_step:
        session.step()
    standing.calls = 0
    for seed in (1, 2):
        session.join(request(model, "torch", TEXTS[0], seed=seed, prompt=recording(model)))
    counts = [standing.calls]
    for _ in range(2):
        session.step()
        counts.append(standing.calls)
    first = counts[1]
    assert counts == [0, first, 2 * first]
    assert first > 0
    session.close()


@every_model
def test_a_recording_that_cannot_be_encoded_fails_its_request_only(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an event. An error of the device that comes late is the batch's."""
    other = request(model, "torch", TEXTS[1], seed=3)
    whole = alone(model, "torch", other)
    session, standing = speaker(model, "torch").session(2), encoder(model, monkeypatch)
    good, parts, failed = session.join(other), [], []
    while not session.begun(good):
        parts += [event.result for event in session.step() if isinstance(event, Part)]
    standing.error = RuntimeError(LARGER)
    bad = session.join(request(model, "torch", TEXTS[0], seed=1, prompt=recording(model)))
    for event in to_end(session):
        if isinstance(event, Failed):
            failed.append((event.key, str(event.error)))
        else:
            parts.append(event.result)
    [(key, message)] = failed
    assert key == bad
    assert message.startswith(MESSAGES[LARGER])
    assert_same(merge(parts), whole, windows=windows(model))
    standing.error = RuntimeError(INTERACTIVITY)
    session.join(request(model, "torch", TEXTS[0], seed=1, prompt=recording(model)))
    with pytest.raises(RuntimeError, match="Interactivity"):
        session.step()
    session.close()


@every_model
def test_what_is_promised_is_estimated_once(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at every call of an engine, which asks all its sessions at every turn."""
    session = speaker(model, "torch").session(3)
    for seed in (1, 2):
        session.join(request(model, "torch", TEXTS[0], seed=seed))
    standing, admission = Standing(session.admission.plan.footprint), session.admission
    monkeypatch.setattr(admission, "plan", replace(admission.plan, footprint=standing))
    assert len({session.promised for _ in range(5)}) == 1
    assert standing.calls <= 2
    session.close()
