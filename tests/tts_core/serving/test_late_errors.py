"""Errors that come with a later call, as those of Metal: only the batch that ran ends. Servers and bulk work.

The sessions only talk; errors are raised by `feed`, and by a step in which a request begins.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.metal_errors import LARGER, LATE, MEMORY, MESSAGES
from tests.tts_core.serving.talkers import Chorus, Said, Singers
from tests.tts_core.serving.test_engine import Singing, engine
from tts_core.bulk.requests import BulkWork
from tts_core.bulk.rows import TextRow
from tts_core.bulk.speaking import RowSpeaker
from tts_core.errors import GenerationError, ResourceError, own_error
from tts_core.serving.engine import SpeechEngine
from tts_core.serving.session import Event, Failed, Part


class Delayed(Chorus):
    """A session with errors that come with the next call of `feed`, or where the next request begins."""

    def __init__(self, errors: list[Exception], places: int, log: list[str], gate: Any = None):
        super().__init__(places, log, gate)
        self.errors = errors

    def step(self) -> list[Event]:
        new = [key for key, (_, place, _) in self.said.items() if not place]
        if new and self.errors:
            found = own_error(self.errors.pop(0))
            self.leave(new[0])
            return [Failed(new[0], found)]
        return super().step()

    def feed(self, key: int, text: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        super().feed(key, text)


class Source(Singing):
    """A source of such sessions."""

    def __init__(self) -> None:
        self.steps = threading.Semaphore(0)
        super().__init__(gate=self.steps)
        self.errors: list[Exception] = []
        self.refused = 0  # sessions that cannot be opened

    def load(self) -> Any:
        """Load."""
        source = self

        class Pipeline(Singers):
            def session(self, places: int) -> Chorus:
                if source.refused:
                    source.refused -= 1
                    raise ResourceError("memory: not enough")
                return Delayed(source.errors, places, source.log, source.gate)

        return Pipeline(self.log)


def begun(source: Source, speaking: SpeechEngine) -> Any:
    """Begin the speech of a neighbor: its first word is spoken."""
    neighbor = speaking.submit("song", "a b c d e")
    source.steps.release()
    assert neighbor.get(60) is not None
    return neighbor


@pytest.mark.parametrize("words", LATE)
@pytest.mark.parametrize("count", [1, 2])
def test_a_late_error_of_a_join_ends_the_batch_that_ran(words: str, count: int) -> None:
    """The request that finds it joins the next batch; if that has the error too, it is its own."""
    source = Source()
    with engine(source, places=2) as speaking:
        neighbor = begun(source, speaking)
        source.errors += [RuntimeError(words)] * count
        found = speaking.submit("song", "f g")
        source.steps.release(99)
        with pytest.raises(ResourceError) as caught:
            list(neighbor)
        assert str(caught.value).startswith(MESSAGES[words])
        if count == 1:
            assert len(list(found)) == 2
        else:
            with pytest.raises(ResourceError):
                list(found)
        assert len(list(speaking.submit("song", "h"))) == 1
        assert source.log.count("close") == count
        assert speaking.ready


def test_a_late_error_where_no_batch_can_be_opened_again() -> None:
    """The model is unloaded; the request that has not begun loads it."""
    source = Source()
    with engine(source, places=2) as speaking:
        neighbor = begun(source, speaking)
        source.errors.append(RuntimeError(LATE[0]))
        source.refused = 1
        found = speaking.submit("song", "f g")
        source.steps.release(99)
        with pytest.raises(ResourceError):
            list(neighbor)
        assert len(list(found)) == 2
        assert len(list(speaking.submit("song", "h"))) == 1


def test_an_error_at_once_is_of_the_request_that_joins() -> None:
    source = Source()
    with engine(source, places=2) as speaking:
        neighbor = begun(source, speaking)
        source.errors.append(RuntimeError(LARGER))
        found = speaking.submit("song", "f g")
        source.steps.release(99)
        with pytest.raises(ResourceError, match="memory: an array is larger"):
            list(found)
        assert len(list(neighbor)) == 4


@pytest.mark.parametrize("words", [MEMORY, LARGER])
def test_an_error_while_text_is_fed_ends_the_batch(words: str) -> None:
    """All of it, for its caches may have changed; the engine goes on."""
    source = Source()
    source.steps.release(99)
    with engine(source, places=2) as speaking:
        live, neighbor = (speaking.submit("song", text, more=True) for text in ("a b", "c d"))
        assert live.get(60) is not None
        assert neighbor.get(60) is not None
        source.errors.append(RuntimeError(words))
        live.feed("f")
        for each in (live, neighbor):
            with pytest.raises(ResourceError):
                list(each)
        assert len(list(speaking.submit("song", "g h"))) == 2
        assert speaking.ready


def test_a_bug_while_text_is_fed_ends_its_request_only() -> None:
    source = Source()
    source.steps.release(99)
    with engine(source, places=2) as speaking:
        live, neighbor = speaking.submit("song", "a b", more=True), speaking.submit("song", "c d", more=True)
        assert live.get(60) is not None
        source.errors.append(KeyError("a bug"))
        live.feed("f")
        with pytest.raises(GenerationError, match="internal: KeyError"):
            list(live)
        neighbor.feed("e")
        neighbor.end()
        assert len(list(neighbor)) == 3


class Texts:
    """Checks texts."""

    model = "dia"

    def request(self, text: str, options: dict[str, Any], prompt: Any) -> Said:
        """As ModelSource.request."""
        return Said(tuple(text.split()), options["seed"])


def rows(*texts: str) -> list[tuple[TextRow, str]]:
    return [(TextRow(place, text[0], text, seed=1), text[0]) for place, text in enumerate(texts)]


@pytest.mark.parametrize("words", LATE)
@pytest.mark.parametrize("count", [1, 2])
def test_bulk_work_goes_on_after_a_late_error(words: str, count: int) -> None:
    errors: list[Exception] = []
    opened: list[Delayed] = []

    class Breaking(Delayed):
        """Its errors come after the first speech that ends."""

        def step(self) -> list[Event]:
            events = super().step()
            if len(opened) == 1 and any(isinstance(one, Part) and one.result.finish_reason for one in events):
                errors.extend([RuntimeError(words)] * count)
            return events

    def open_session() -> Delayed:
        opened.append((Delayed if opened else Breaking)(errors, 2, []))
        return opened[-1]

    speaker = RowSpeaker(
        cast(Any, Texts()), cast(Any, open_session), BulkWork({}, Path("voices"), ".wav", None)
    )
    found = {ended.id: ended.error for ended in speaker.speak(rows("a b c", "d", "e f", "g"))}
    assert set(found) == set("adeg")
    broken = {id for id, error in found.items() if error is not None and error.startswith(MESSAGES[words])}
    assert broken == (set("a") if count == 1 else set("ae"))
    assert len(opened) == 1 + count


def test_bulk_work_goes_on_after_a_step_that_lacked_memory() -> None:
    """With a batch of its own; what spoke in the step has failed."""
    opened: list[Chorus] = []

    def open_session() -> Chorus:
        opened.append(Chorus(2, []))
        return opened[-1]

    speaker = RowSpeaker(
        cast(Any, Texts()), cast(Any, open_session), BulkWork({}, Path("voices"), ".wav", None)
    )
    found = {one.id: one.error for one in speaker.speak(rows("x hoard", "a b c", "d e", "f"))}
    assert set(found) == set("xadf")
    assert {id for id, error in found.items() if error is not None} == set("xa")
    assert len(opened) == 2
