"""The engine's bookkeeping: who spoke last, whose promises count, and when the thread may sleep."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.tts_core.serving.talkers import RATE, Chorus, Said, sound
from tests.tts_core.serving.test_engine import SOON, Singing, engine, until
from tts_core.errors import BusyError
from tts_core.results import Meter
from tts_core.serving.speech import Speech


def test_speaking_counts_as_use() -> None:
    """The model that spoke last stays, though it was loaded first."""
    loaded: list[Singing] = []
    sources = {name: Singing(most=2, loaded=loaded) for name in "abc"}
    with engine(sources) as speaking:
        until(lambda: loaded == [sources["b"], sources["a"]])
        assert len(list(speaking.submit("b", "one"))) == 1
        assert len(list(speaking.submit("c", "two"))) == 1
        assert loaded == [sources["b"], sources["c"]]


def test_a_model_is_not_unloaded_right_after_it_spoke(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle time begins with the last step, not with the load."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    gate, source = threading.Semaphore(0), Singing()
    source.gate = gate
    with engine(source, idle_unload=10.0) as speaking:
        speech = speaking.submit("song", "one two")
        now[0] = 9.0
        gate.release(2)
        assert len(list(speech)) == 2
        now[0] = 18.0
        speaking._wake()
        assert len(list(_again(speaking, gate))) == 1
        now[0] = 28.5
        speaking._wake()
        until(lambda: source.loaded == [])
    assert source.log.count("load") == 1


def _again(speaking: Any, gate: threading.Semaphore) -> Any:
    gate.release()
    return speaking.submit("song", "three")


class Promising(Chorus):
    """A batch whose running requests will each need `each` bytes more; it notes what others promised."""

    def __init__(self, *given: Any, each: int, seen: list[int]):
        super().__init__(*given)
        self.each, self.seen = each, seen

    @property
    def promised(self) -> int:  # type: ignore[override]
        return self.each * self.running

    def fits(self, request: Said, *, promised: int = 0) -> bool:
        self.seen.append(promised)
        return super().fits(request, promised=promised)


class Promises(Singing):
    """A source of such batches."""

    def __init__(self, each: int, gate: threading.Semaphore):
        super().__init__(gate=gate)
        self.each, self.seen = each, list[int]()

    def load(self) -> Any:
        made = super().load()
        made.session = lambda places: Promising(places, self.log, self.gate, each=self.each, seen=self.seen)
        return made


def test_only_other_models_promises_count() -> None:
    """A batch knows its own requests; counted twice they would keep others out."""
    gate = threading.Semaphore(0)
    sources = {"a": Promises(3, gate), "b": Promises(5, gate)}
    with engine(sources, places=4) as speaking:
        speeches = [speaking.submit(name, "one two three") for name in "ab"]
        until(lambda: all(speech.state == "speaking" for speech in speeches))
        speeches.append(speaking.submit("a", "four"))
        gate.release(99)
        for speech in speeches:
            assert len(list(speech)) in (1, 3)
    assert sources["a"].seen == [0, 5]
    assert sources["b"].seen == [3]


def test_the_thread_sleeps_while_text_is_awaited() -> None:
    """A model that waits for text is not idle: nothing is due, however long it takes."""
    with engine(Singing(), idle_unload=0.01) as speaking:
        speech = speaking.submit("song", "one two", more=True)
        assert speech.get(SOON) is not None
        time.sleep(0.02)
        assert speaking._patience() is None
        speech.end()
        assert len(list(speech)) == 1


def test_the_thread_sleeps_once_all_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine(Singing()) as speaking:
        assert len(list(speaking.submit("song", "one two"))) == 2
        until(lambda: all(one.session.waiting for one in speaking._shelf))
        turns = threading.Semaphore(0)
        monkeypatch.setattr(speaking, "_cycle", turns.release)
        speaking._wake()
        assert turns.acquire(timeout=SOON)
        spun = [turns.acquire(timeout=0.05) for _ in range(3)]
        assert spun == [False] * 3


@pytest.mark.parametrize(("places", "expected"), [(1, 15.0), (2, 7.5)])
def test_a_full_queue_is_guessed_to_empty_by_the_places(places: int, expected: float) -> None:
    """Three wait, five seconds each before any was measured."""
    gate = threading.Semaphore(0)
    with engine(Singing(gate=gate), max_queue=3, places=places) as speaking:
        running = [speaking.submit("song", "one") for _ in range(places)]
        until(lambda: speaking.statistics().queued == 0)
        waiting = [speaking.submit("song", "two") for _ in range(3)]
        assert speaking.statistics().queued == 3
        with pytest.raises(BusyError, match="queue: full, 3 requests in it") as refused:
            speaking.submit("song", "three")
        gate.release(9)
        assert refused.value.retry_after == expected
        assert all(len(list(speech)) == 1 for speech in (*running, *waiting))


def test_the_guess_follows_the_seconds_that_requests_are_spoken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of each, without its time in the queue."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    gate = threading.Semaphore(0)
    with engine(Singing(gate=gate), max_queue=1, places=1) as speaking:
        first = speaking.submit("song", "one")
        until(lambda: first.state == "speaking")
        second = speaking.submit("song", "two")
        now[0] = 100.0
        gate.release()
        assert len(list(first)) == 1
        until(lambda: second.state == "speaking")
        gate.release()
        assert len(list(second)) == 1
        third = speaking.submit("song", "three")
        until(lambda: third.state == "speaking")
        fourth = speaking.submit("song", "four")
        with pytest.raises(BusyError) as refused:
            speaking.submit("song", "five")
        gate.release(2)
        assert refused.value.retry_after == pytest.approx(0.9 * (0.9 * 5.0 + 0.1 * 100.0))
        assert len(list(third)) == len(list(fourth)) == 1


def test_a_part_without_sound_is_not_the_first_audio() -> None:
    speech = Speech("song", None, more=False, on_part=None, wake=lambda: None)
    meter = Meter(RATE)
    for audio, heard in ((np.zeros(0, np.float32), False), (sound("one"), True)):
        codes = np.zeros((1, 0), np.int32)
        speech.give(meter.result(audio, codes, seed=1, token_count=0, peak_bytes=0, finish_reason=None))
        assert (speech.first_audio is not None) is heard


class Choosy(Chorus):
    """A batch in which a request for "big" fits only when nobody else is spoken."""

    def fits(self, request: Said, *, promised: int = 0) -> bool:
        return super().fits(request) and (request.words[0] != "big" or not self.running)


class Choosing(Singing):
    """A source whose sessions are Choosy."""

    def load(self) -> Any:
        pipeline = super().load()
        pipeline.session = lambda places: Choosy(places, self.log, self.gate)
        return pipeline


def test_no_request_overtakes_another_of_its_model() -> None:
    """One that fits waits behind one that does not; another model's goes on."""
    gate, picky, other = threading.Semaphore(0), Choosing(), Singing()
    picky.gate = gate
    with engine({"picky": picky, "other": other}) as speaking:
        first = speaking.submit("picky", "one two three")
        until(lambda: "join one" in picky.log)
        big, small = speaking.submit("picky", "big"), speaking.submit("picky", "small")
        quick = speaking.submit("other", "quick")
        gate.release(3)
        assert len(list(quick)) == 1
        assert len(list(first)) == 3
        gate.release(100)
        assert [len(list(big)), len(list(small))] == [1, 1]
    joined = [line for line in picky.log if line.startswith("join")]
    assert joined == ["join one", "join big", "join small"]
