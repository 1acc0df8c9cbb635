"""Sessions whose codec has a stream of its own: speech, ends and errors are those of one after the other."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.contract.arrivals import serve
from tests.contract.speakers import (
    SENTENCES,
    TEXTS,
    alone,
    assert_same,
    every_model,
    mixed,
    request,
    running_batch,
    speaker,
    to_end,
    unlimited,
    windows,
)
from tests.contract.speakers import given as arguments
from tests.hosts import Late, LateStream
from tts_core.results import GenerationResult
from tts_core.serving.session import Failed
from tts_core.speaking.windows import AT_ONCE, WindowQueue

SIDE = "torch"


@cache
def asked(model: str) -> list[Any]:
    return mixed(model, SIDE)


@cache
def expected(model: str) -> list[GenerationResult]:
    return [alone(model, SIDE, one) for one in asked(model)]


def late(model: str, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> LateStream:
    """Give a model's codec a stream of its own."""
    engine = speaker(model, SIDE).engine
    stream = LateStream(engine.host, seed)
    monkeypatch.setattr(engine, "host", stream)
    if model == "metavoice":
        monkeypatch.setattr(engine.decoders["vocos"], "host", stream)
    return stream


def run(session: Any) -> list[tuple[int, Any]]:
    """Run a session to its end. Returns each part's key, samples, codes and end, or its error."""
    found = []
    for event in to_end(session):
        if isinstance(event, Failed):
            found.append((event.key, str(event.error)))
        else:
            one = event.result
            found.append((event.key, (one.audio.tolist(), one.codes.tolist(), one.finish_reason)))
    return found


@every_model
@pytest.mark.parametrize(("places", "leaving"), [(2, 0.01), (5, 0.0)])
def test_requests_come_and_go(
    model: str, places: int, leaving: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other texts, voices, settings, speeds and pieces; some leave unfinished."""
    compared = expected(model)
    stream = late(model, monkeypatch, places)
    session = speaker(model, SIDE).session(places)
    found = serve(session, asked(model), seed=places, leaving=leaving)
    assert len(found) == len(asked(model)) if not leaving else found
    for place, result in found.items():
        assert_same(result, compared[place], windows=windows(model))
    session.close()
    assert 0 < stream.most <= AT_ONCE
    assert stream.under_way == 0


@every_model
def test_parts_are_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample by sample, cut at the same places, of a text of one piece and of several."""
    for text, how in ((TEXTS[0], arguments(model, seed=3)), (SENTENCES, unlimited(model, seed=3))):
        one = request(model, SIDE, text, **how)
        with monkeypatch.context() as patched:
            session = speaker(model, SIDE).session(1)
            session.join(one)
            plain = run(session)
            stream = late(model, patched)
            session = speaker(model, SIDE).session(1)
            session.join(one)
            assert run(session) == plain
            assert stream.begun > 0


@every_model
def test_a_batch_is_the_same(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample by sample."""
    how = arguments(model, seed=[1, 2, 3])
    prompt = how.pop("prompt")
    texts = TEXTS[:3]
    plain = speaker(model, SIDE).generate_batch(texts, prompts=[prompt] * 3, **how)
    stream = late(model, monkeypatch)
    for one, other in zip(
        speaker(model, SIDE).generate_batch(texts, prompts=[prompt] * 3, **how), plain, strict=True
    ):
        assert_same(one, other)
    assert stream.begun > 0 or model == "metavoice"  # which decodes all pieces together, at the end
    assert stream.under_way == 0


@every_model
def test_short_memory(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch that lacks memory is made again once all others have ended."""
    one = request(model, SIDE, TEXTS[1], seed=3)
    plain = alone(model, SIDE, one)
    stream = late(model, monkeypatch)
    stream.errors = [torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")]
    assert_same(alone(model, SIDE, one), plain)
    assert not stream.errors


@pytest.mark.parametrize("model", ["dia", "dia2", "qwen3"])  # whose codec decodes while a piece is drawn
@pytest.mark.parametrize("listeners", [1, 2])
def test_only_one_who_is_alone_waits_for_the_first_sound(
    model: str, listeners: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several, all would wait for the sound of one."""
    stream = late(model, monkeypatch)
    monkeypatch.setattr(Late, "ready", lambda own: False)
    session = speaker(model, SIDE).session(2)
    for seed in range(listeners):
        session.join(request(model, SIDE, SENTENCES, **unlimited(model, seed=seed)))
    events = []
    while not stream.begun:
        events = session.step()
    assert len(events) == (listeners == 1)
    session.close()


@every_model
def test_close_leaves_nothing_running(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = late(model, monkeypatch, seed=1)
    ended = WindowQueue.ended
    monkeypatch.setattr(Late, "ready", lambda own: False)
    monkeypatch.setattr(WindowQueue, "ended", lambda own, *, wait: ended(own, wait=False))
    session = speaker(model, SIDE).session(2)
    for seed in (1, 2):
        session.join(request(model, SIDE, TEXTS[0], seed=seed))
    while not stream.under_way:
        session.step()
    session.close()
    assert (stream.under_way, session.running) == (0, 0)


def test_what_was_spoken_before_a_fault_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dia's logits become NaN at a late step: the windows that were complete come before the error."""
    one = request("dia", SIDE, "The inn is near. " * 6, seed=4, max_frames=60)

    def faulty() -> list[tuple[int, Any]]:
        session = speaker("dia", SIDE).session(1)
        session.join(one)
        slots = running_batch(session)
        read, steps = slots.read, []

        def broken(launched: Any) -> np.ndarray:
            steps.append(1)
            return np.full_like(read(launched), -1) if len(steps) > 50 else read(launched)

        monkeypatch.setattr(slots, "read", broken)
        return run(session)

    monkeypatch.setattr(speaker("dia", SIDE).engine, "fault", lambda *given: RuntimeError("not finite"))
    plain = faulty()
    assert len(plain) > 2
    assert plain[-1][1] == "not finite"
    late("dia", monkeypatch)
    assert faulty() == plain
