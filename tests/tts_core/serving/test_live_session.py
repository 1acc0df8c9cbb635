"""Text that arrives in pieces, for models that read a text at once: engine and session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import pytest

from tests.metal_errors import INTERACTIVITY, LARGER, LATE, MESSAGES
from tests.tts_core.live.speaker import Options, Speaker
from tests.tts_core.serving.test_engine import SOON, Singing, engine, until
from tts_core.errors import SpeechError, UsageError
from tts_core.live.chain import Chain
from tts_core.live.stream import stream
from tts_core.live.voices import SameVoices
from tts_core.pipeline import Pipeline
from tts_core.results import GenerationResult, join
from tts_core.serving.live_session import LiveRequest, LiveSession
from tts_core.serving.session import Event, Failed, Part

FIRST, SECOND, THIRD = "One two three four five.", "Six seven eight nine ten.", "Eleven and twelve, and more."


class OneByOne:
    """A session with one place, filled by the pipeline's own stream: a step gives its next part."""

    places = 1
    promised = 0  # memory is checked when a request begins, and its step ends before another model's

    def __init__(self, pipeline: Pipeline, rehearsal: Callable[[], Any]):
        self.pipeline, self.rehearsal = pipeline, rehearsal
        self._joined = 0  # requests so far
        self._key: int | None = None
        self._parts: Iterator[GenerationResult] = iter(())
        self._cancel = threading.Event()

    @property
    def running(self) -> int:
        return int(self._key is not None)

    @property
    def waiting(self) -> bool:
        return self._key is None

    def fits(self, request: Any, *, promised: int = 0) -> bool:
        """As in Session. Memory is checked by `join`."""
        return self._key is None

    def join(self, request: Any, *, more: bool = False, cancel: threading.Event | None = None) -> int:
        if more:
            raise UsageError("text: this model reads its text at once; give all of it")
        assert self._key is None, "asked by `fits` first"
        self._cancel = cancel or threading.Event()
        self._parts = iter(self.pipeline.speak(request, cancel=self._cancel))
        self._joined += 1
        self._key = self._joined
        return self._key

    def feed(self, key: int, text: str) -> None:
        raise UsageError("text: this model reads its text at once")

    def end(self, key: int) -> None:
        """As in Session."""

    def step(self) -> list[Event]:
        key = self._key
        if key is None:
            return []
        try:
            result = next(self._parts)
        except SpeechError as error:
            self.close()
            return [Failed(key, error)]
        if result.is_final_chunk:
            self.close()
        return [Part(key, result)]

    def prepare(self) -> None:
        """As in Session."""

    def leave(self, key: int) -> None:
        if key == self._key:
            self.close()

    def close(self) -> None:
        self._key, self._parts = None, iter(())


class Spoken:
    """A source of the speaker, which is not fed."""

    fed = False

    def __init__(self) -> None:
        self.speaker = Speaker()

    def request(self, text: str, options: Mapping[str, Any], prompt: Any) -> Any:
        return self.speaker.request(text, Options(**options), prompt)

    def live(self, text: str, options: Mapping[str, Any], prompt: Any) -> LiveRequest:
        return live(self.speaker, text, **options)

    def load(self) -> Any:
        pipeline = cast(Any, self.speaker)
        pipeline.session = lambda places: OneByOne(pipeline, lambda: self.request("Warm.", {}, None))
        return pipeline


def live(speaker: Speaker, text: str, **options: Any) -> LiveRequest:
    chain = Chain(speaker.request, Options(**options), SameVoices(None))
    return LiveRequest(chain, chain.next(text))


def alone(*texts: str, **options: Any) -> GenerationResult:
    pipeline = cast(Any, Speaker())
    return join(list(stream(pipeline, [" ".join(texts)], Options(**options), SameVoices(None))))


def session() -> LiveSession:
    pipeline = cast(Pipeline, Speaker())
    return LiveSession(OneByOne(pipeline, lambda: None))


def test_fed_texts_sound_as_the_stream() -> None:
    """Whenever they come: before the piece before has ended, or long after."""
    with engine(Spoken()) as speaking:
        speech = speaking.submit("song", FIRST, options={"seed": 4}, more=True)
        first = [speech.get(SOON) for _ in range(5)]
        with pytest.raises(TimeoutError):
            speech.get(0.05)
        assert speaking.statistics().running == 1
        speech.feed(SECOND)
        speech.feed(THIRD)
        speech.feed("[pause:0.25]")
        speech.end()
        parts = [part for part in (*first, *speech) if part is not None]
        found = join(parts)
        whole = alone(FIRST, SECOND, THIRD, "[pause:0.25]", seed=4)
        np.testing.assert_array_equal(found.audio, whole.audio)
        assert (found.cues, found.words, found.seed) == (whole.cues, whole.words, 4)
        assert (speech.finish_reason, speech.token_count) == ("stop", 15)
        until(lambda: speaking.statistics().outcomes == {"stop": 1})


def test_one_that_waits_for_text_leaves_its_place_and_comes_back_first() -> None:
    source = Spoken()
    with engine(source) as speaking:
        waiting = speaking.submit("song", FIRST, options={"seed": 1}, more=True)
        assert [waiting.get(SOON) for _ in range(5)]
        others = [speaking.submit("song", f"other {place} {FIRST}") for place in range(3)]
        assert all(list(other) for other in others)
        waiting.feed(SECOND)
        waiting.end()
        assert join(list(waiting)).finish_reason == "stop"


def waiting() -> tuple[LiveSession, Any, int]:
    """A session, its pipeline, and its only request, which has said its first text; it counts once."""
    held = session()
    pipeline = cast(Any, held.session).pipeline
    key = held.join(live(pipeline, FIRST), more=True)
    while not held.waiting:
        assert held.running == 1
        held.step()
    assert held.running == 1
    return held, pipeline, key


def test_those_that_have_text_again_go_before_the_queue() -> None:
    held, pipeline, key = waiting()
    asked = pipeline.request("A text.", Options())
    assert held.fits(asked)
    held.feed(key, SECOND)
    assert not held.fits(asked)
    assert not held.waiting


def test_texts_without_words_do_not_delay_the_next_piece() -> None:
    held, _, key = waiting()
    for text in ("[pause:0.25]", "...", SECOND):
        held.feed(key, text)
    [event] = held.step()
    assert isinstance(event, Part)
    assert event.result.samples


def test_plain_requests_pass_through() -> None:
    with engine(Spoken()) as speaking:
        parts = list(speaking.submit("song", f"{FIRST} {SECOND}", options={"seed": 2}))
        assert len(parts) == 10
        assert parts[-1].is_final_chunk


def test_a_text_without_end_or_more_ends() -> None:
    held = session()
    key = held.join(live(cast(Any, held.session).pipeline, FIRST), more=False)
    events = [event for _ in range(9) if held.running for event in held.step()]
    assert [isinstance(event, Part) and event.key == key for event in events] == [True] * 6
    assert held.running == 0


def test_a_bad_text_ends_its_own_request() -> None:
    with engine(Spoken()) as speaking:
        bad, good = (speaking.submit("song", FIRST, more=True) for _ in range(2))
        bad.feed('A <prosody rate="1">text</prosody> of SSML.')
        good.feed(SECOND)
        good.end()
        with pytest.raises(UsageError, match="SSML"):
            list(bad)
        assert join(list(good)).token_count == 10
        with pytest.raises(UsageError, match="no words"):
            speaking.submit("song", "...", more=True)


def test_a_bad_text_at_the_very_end_is_the_last_that_is_heard_of_its_request() -> None:
    held, _, key = waiting()
    held.feed(key, 'A <prosody rate="1">text</prosody> of SSML.')
    held.end(key)
    [failed] = held.step()
    assert isinstance(failed, Failed)
    assert (failed.key, held.running, held.step()) == (key, 0, [])


def test_a_bug_in_the_books_of_a_piece_ends_its_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    held, _, key = waiting()

    def broken(*_: Any) -> Any:
        raise KeyError("a bug")

    monkeypatch.setattr(Chain, "next", broken)
    held.feed(key, SECOND)
    [failed] = held.step()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, KeyError)
    assert (failed.key, held.running, held.waiting) == (key, 0, True)


def test_the_length_limit_ends_it_while_text_comes() -> None:
    with engine(Spoken()) as speaking:
        speech = speaking.submit("song", FIRST, options={"max_seconds": 0.3}, more=True)
        parts = list(speech)
        assert sum(part.samples for part in parts) == 300
        assert speech.finish_reason == "length"
        speech.feed(SECOND)
        until(lambda: speaking.statistics().running == 0)


def test_cancelled_at_any_moment() -> None:
    with engine(Spoken()) as speaking:
        for wait in (0, 2, 5):
            speech = speaking.submit("song", FIRST, more=True)
            for _ in range(wait):
                speech.get(SOON)
            speech.cancel()
            until(lambda: speaking.statistics().running == 0)
        assert speaking.statistics().outcomes == {"cancelled": 3}


def test_failures_are_ours_and_closing_forgets() -> None:
    held = session()
    pipeline = cast(Any, held.session).pipeline
    stop = threading.Event()
    key = held.join(live(pipeline, FIRST), more=True, cancel=stop)
    held.step()
    stop.set()
    [failed] = held.step()
    assert isinstance(failed, Failed)
    assert (failed.key, held.running, held.waiting) == (key, 0, True)
    held.join(live(pipeline, FIRST), more=True)
    held.close()
    assert held.running == 0


def test_a_listener_who_is_behind_gets_no_further_text_spoken() -> None:
    """Also where the session takes words at any time."""
    source = Spoken()
    for one in (source, Singing()):
        with engine(one) as speaking:
            speech = speaking.submit("song", "One two three four", more=True, ahead=1.0)
            for _ in range(30):
                speech.feed("five six seven eight")
            speech.end()
            seen = 0
            while not seen or speech.samples > seen:
                seen = speech.samples
                time.sleep(0.1)
            assert seen < 8 * speech.sample_rate
            assert len(join(list(speech)).audio) > seen
            assert speech.finish_reason == "stop"


@pytest.mark.parametrize("words", [LARGER, INTERACTIVITY])
def test_a_piece_that_cannot_begin_ends_its_request_only(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the error may belong to a step of the batch."""
    running = session()
    key = running.join(live(Speaker(), FIRST), more=True)
    running.feed(key, SECOND)

    def join(*given: Any, **named: Any) -> int:
        raise RuntimeError(words)

    monkeypatch.setattr(running.session, "join", join)
    events = []
    with pytest.raises(RuntimeError) if words in LATE else nullcontext():
        while running.running:
            events += running.step()
    if words not in LATE:
        assert isinstance(events[-1], Failed)
        assert str(events[-1].error).startswith(MESSAGES[words])
