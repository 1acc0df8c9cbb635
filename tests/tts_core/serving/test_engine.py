"""The engine: queue, places, cancellation, faults, loading and unloading, with models that only talk."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest

from tests.tts_core.serving.talkers import RATE, SAMPLES, Chorus, Said, Singers, sound
from tts_core.errors import (
    CancelledError,
    GenerationError,
    NotFoundError,
    ResourceError,
    UsageError,
)
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Event, Failed, Part
from tts_core.serving.source import ModelSource
from tts_core.serving.speech import Speech
from tts_core.serving.statistics import Ended

SOON = 600.0  # seconds; only a test that hangs waits so long


class Singing:
    """A source of Singers. most: models of all sources that are loaded at once, by `loaded`."""

    fed = True

    def __init__(self, *, gate: threading.Semaphore | None = None, most: int = 9, loaded: Any = None):
        self.log: list[str] = []
        self.gate, self.most, self.loaded = gate, most, [] if loaded is None else loaded
        self.threads: set[int] = set()

    def request(self, text: str, options: Any, prompt: Any) -> Said:
        """Check a text."""
        return Singers(self.log).request(text, options.get("seed"))

    live = request

    def load(self) -> Any:
        """Load, if fewer models than `most` are."""
        self.threads.add(threading.get_ident())
        if len(self.loaded) >= self.most:
            raise ResourceError("memory: the model does not fit")
        self.log.append("load")
        self.loaded.append(self)
        return _Counted(self)


class _Counted(Singers):
    """A loaded model that counts as such until its session is closed."""

    def __init__(self, source: Singing):
        super().__init__(source.log, source.gate)
        self.source = source

    def session(self, places: int) -> Any:
        """Open a session that tells its end."""
        made, loaded, source = super().session(places), self.source.loaded, self.source
        close = made.close

        def closed() -> None:
            close()
            if source in loaded:
                loaded.remove(source)

        made.close = closed
        return made


@contextmanager
def engine(source: Any = None, **options: Any) -> Iterator[SpeechEngine]:
    """A running engine. source: one model, or a dict of several."""
    models = source if isinstance(source, dict) else {"song": source or Singing()}
    options.setdefault("warm_up", False)
    made = SpeechEngine(cast(dict[str, ModelSource], models), **options)
    made.start()
    assert made.wait_ready(SOON)
    try:
        yield made
    finally:
        made.close()


def until(check: Callable[[], bool]) -> None:
    """Wait until it is true."""
    end = time.perf_counter() + SOON
    while not check():
        assert time.perf_counter() < end
        time.sleep(0.001)


def test_requests_share_steps_and_sound_as_by_themselves() -> None:
    """Parts arrive one by one, with the seed; everything runs in one thread, which is not the caller's."""
    source = Singing()
    with engine(source, places=2) as speaking:
        texts = ["one two three", "four five", "six", "seven eight nine ten"]
        speeches = [speaking.submit("song", text, options={"seed": 7}) for text in texts]
        for text, speech in zip(texts, speeches, strict=True):
            heard = np.concatenate([part.audio for part in speech])
            np.testing.assert_array_equal(heard, np.concatenate([sound(word) for word in text.split()]))
            assert (speech.finish_reason, speech.seed, speech.state) == ("stop", 7, "ended")
            assert speech.get() is None
    assert [line for line in source.log if line.startswith("join")] == [
        "join one",
        "join four",
        "join six",
        "join seven",
    ]
    assert "step one four" in source.log
    assert len(source.threads) == 1
    assert threading.get_ident() not in source.threads


def test_bad_requests_are_refused_at_once() -> None:
    with engine() as speaking:
        with pytest.raises(UsageError, match="empty"):
            speaking.submit("song", " ")
        with pytest.raises(NotFoundError, match="sond is not served; did you mean song"):
            speaking.submit("sond", "one")
        assert speaking.statistics().outcomes == {}
        with pytest.raises(ResourceError, match="too little"):
            list(speaking.submit("song", "everything"))


def test_a_cancelled_request_leaves_before_the_next_step() -> None:
    """Its place goes to the next in the queue, its neighbor is not disturbed, a queued one never joins."""
    gate = threading.Semaphore(0)
    source = Singing(gate=gate)
    with engine(source, places=2) as speaking:
        first, second = speaking.submit("song", "one two three"), speaking.submit("song", "four five six")
        third, fourth = speaking.submit("song", "seven"), speaking.submit("song", "eight")
        gate.release()
        assert first.get(SOON) is not None
        assert second.get(SOON) is not None
        first.cancel()
        third.cancel()
        gate.release(9)
        assert len(list(second)) == 2
        assert len(list(fourth)) == 1
        for speech in (first, third):
            with pytest.raises(CancelledError):
                list(speech)
        first.cancel()
        until(lambda: speaking.statistics().outcomes == {"stop": 2, "cancelled": 2})
    left = source.log.index("leave one")
    assert sum(line.startswith("step one") for line in source.log[:left]) <= 2  # one was under way
    assert not any("one" in line for line in source.log[left + 1 :])
    assert "join seven" not in source.log


def test_a_fault_ends_its_own_request_only() -> None:
    with engine(Singing(), places=3) as speaking:
        speeches = [speaking.submit("song", text) for text in ("a choke b", "c d e")]
        assert len(list(speeches[1])) == 3
        assert speeches[0].get() is not None
        with pytest.raises(GenerationError, match="choked"):
            speeches[0].get()


class Confused(Chorus):
    """A session with events of nobody, and with one of the word "odd" that is no speech."""

    def step(self) -> list[Event]:
        events = super().step()
        odd = {key for key, (said, _, _) in self.said.items() if "odd" in said.words}
        given = [Part(one.key, cast(Any, None)) if one.key in odd else one for one in events]
        return [Failed(999, GenerationError("of nobody")), *given, Part(998, cast(Any, None))]


def test_an_event_of_nobody_or_one_that_cannot_be_taken_ends_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does a listener of the ends of requests."""

    def heard(ended: Ended) -> None:
        raise OSError("no room in the log")

    monkeypatch.setattr(Singers, "session", lambda self, places: Confused(places, self.log))
    with engine(Singing(), places=2, on_end=heard) as speaking:
        bad, good = (speaking.submit("song", text) for text in ("an odd one", "b c d"))
        assert len(list(good)) == 3
        with pytest.raises(GenerationError, match="internal: AttributeError"):
            list(bad)
        assert len(list(speaking.submit("song", "e f"))) == 2
        assert speaking.ready
    assert "song has an event of request 999, which has left" in caplog.text


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        ("crash", GenerationError, "internal: RuntimeError: crashed"),
        ("hoard", ResourceError, "memory: not enough; use a smaller"),
    ],
)
def test_after_a_crash_the_model_speaks_again(word: str, kind: type[Exception], message: str) -> None:
    gate = threading.Semaphore(0)
    with engine(Singing(gate=gate), places=2) as speaking:
        speeches = [speaking.submit("song", text) for text in (f"a {word}", "b c d", "e f")]
        gate.release(99)
        for speech in speeches[:2]:
            with pytest.raises(kind, match=message):
                list(speech)
        assert len(list(speeches[2])) == 2


def test_text_arrives_while_it_speaks() -> None:
    """Also before it has joined. A waiting request costs no steps."""
    source = Singing()
    with engine(source) as speaking:
        speech = speaking.submit("song", "one two", more=True)
        assert speech.get(SOON) is not None
        with pytest.raises(TimeoutError):
            speech.get(0.05)
        steps = len(source.log)
        time.sleep(0.05)
        assert len(source.log) == steps
        speech.feed("three")
        assert speech.get(SOON) is not None
        speech.feed("four five")
        speech.end()
        speech.end()
        assert len(list(speech)) == 3
        with pytest.raises(UsageError, match="complete"):
            speech.feed("six")
        bad = speaking.submit("song", "one", more=True)
        bad.feed(" ")
        with pytest.raises(UsageError, match="blank"):
            list(bad)


def test_the_least_recently_used_model_makes_room() -> None:
    """A load waits until nobody speaks, and nobody overtakes it."""
    loaded: list[Singing] = []
    gate = threading.Semaphore(0)
    sources = {name: Singing(most=2, loaded=loaded) for name in "abc"}
    sources["a"].gate = gate
    with engine(sources) as speaking:
        assert speaking.statistics().queued == 0
        until(lambda: len(loaded) == 2)
        assert loaded == [sources["b"], sources["a"]]  # the first of the list is loaded last
        running = speaking.submit("a", "one two")
        until(lambda: running.state == "speaking")
        other, later = speaking.submit("c", "three"), speaking.submit("a", "four")
        gate.release()
        assert running.get(SOON) is not None
        time.sleep(0.02)
        assert (other.state, later.state) == ("queued", "queued")
        gate.release(9)
        assert len(list(other)) == 1
        assert loaded == [sources["a"], sources["c"]]
        assert len(list(later)) == 1
    assert sources["a"].log.index("join four") > sources["a"].log.index("leave one")
    assert loaded == []


def test_what_is_loaded_is_stated_as_soon_as_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody has spoken."""
    speaking = SpeechEngine({"a": cast(ModelSource, Singing())})
    ready, seen = speaking._ready.set, []
    monkeypatch.setattr(speaking._ready, "set", lambda: seen.append(speaking.statistics().loaded) or ready())
    speaking.start()
    speaking.wait_ready()
    speaking.close()
    assert seen[0] == ("a",)


def test_an_idle_model_is_unloaded_and_comes_back() -> None:
    source = Singing()
    with engine(source, idle_unload=0.05, warm_up=True) as speaking:
        until(lambda: source.loaded == [])
        assert len(list(speaking.submit("song", "one two"))) == 2
        until(lambda: source.loaded == [])
        until(lambda: speaking.statistics().loaded == ())
    assert source.log.count("load") == 2
    assert source.log.count("join rehearsal") == 2


def test_it_drains_and_then_cancels() -> None:
    gate = threading.Semaphore(0)
    with engine(Singing(gate=gate), places=1) as speaking:
        first, second = speaking.submit("song", "one"), speaking.submit("song", "two")
        gate.release(9)
        speaking.close(drain_seconds=SOON)
        assert [len(list(speech)) for speech in (first, second)] == [1, 1]
        assert not speaking.ready
        with pytest.raises(ResourceError, match="closing"):
            speaking.submit("song", "three")
    gate = threading.Semaphore(0)
    with engine(Singing(gate=gate), places=1) as speaking:
        first, second = speaking.submit("song", "one two"), speaking.submit("song", "three")
        until(lambda: first.state == "speaking")
        closing = threading.Thread(target=speaking.close)
        closing.start()
        until(lambda: not speaking.ready)
        gate.release()  # the step under way
        closing.join(SOON)
        assert not closing.is_alive()
        for speech in (first, second):
            with pytest.raises(CancelledError):
                list(speech)


def test_a_listener_is_called_and_cannot_harm() -> None:
    """After each part and after the end, by the thread that speaks."""
    calls: list[str] = []

    def broken(speech: Speech) -> None:
        raise RuntimeError("the loop is closed")

    with engine() as speaking:
        speech = speaking.submit("song", "one two", on_part=lambda speech: calls.append(speech.state))
        other = speaking.submit("song", "three four five", on_part=broken)
        assert len(list(speech)) == 2
        with pytest.raises(CancelledError):
            list(other)
        assert len(list(speaking.submit("song", "six"))) == 1
    assert calls == ["speaking", "ended"]


def test_it_counts() -> None:
    ended: list[Ended] = []
    with engine(places=3, on_end=ended.append) as speaking:
        speeches = [speaking.submit("song", text) for text in ("one two", "choke", "three")]
        for speech in (speeches[0], speeches[2]):
            list(speech)
        until(lambda: len(ended) == 3)
        until(lambda: speaking.statistics().running == 0)
        counted = speaking.statistics()
    assert counted.outcomes == {"stop": 2, "GenerationError": 1}
    assert (counted.queued, counted.places, counted.loaded, counted.ids) == (0, 3, ("song",), 3)
    assert counted.audio_seconds == 3 * SAMPLES / RATE
    by_outcome = {one.outcome: one for one in ended}
    stopped, failed = by_outcome["stop"], by_outcome["GenerationError"]
    assert stopped.started is not None
    assert stopped.first_audio is not None
    assert 0 <= stopped.started <= stopped.first_audio <= stopped.seconds
    assert stopped.real_time_factor is not None
    assert stopped.real_time_factor > 0
    assert (failed.first_audio, failed.real_time_factor) == (None, None)


def test_a_model_that_does_not_load_is_reported() -> None:
    made = SpeechEngine(cast(Any, {"song": Singing(most=0)}))
    made.start()
    with pytest.raises(ResourceError, match="does not fit"):
        made.wait_ready(SOON)
    assert not made.ready
    with pytest.raises(ResourceError, match="closing"):
        made.submit("song", "one")
    made.close()


def test_what_makes_no_sense_is_refused() -> None:
    song = cast(Any, {"song": Singing()})
    with pytest.raises(UsageError, match="places >= 1"):
        SpeechEngine(song, places=0)
    with pytest.raises(UsageError, match="max_queue >= 1"):
        SpeechEngine(song, max_queue=0)
    with pytest.raises(UsageError, match="one model or more"):
        SpeechEngine({})
