"""The models that are loaded, and Python's collector of cycles."""

from __future__ import annotations

import gc
import weakref
from multiprocessing import get_context
from typing import Any, cast

import pytest

from tests.tts_core.serving.talkers import Chorus, Singers
from tts_core.serving.shelf import Shelf
from tts_core.serving.source import ModelSource

pytestmark = pytest.mark.rest


class Cyclic(Singers):
    """A model that only the collector frees."""

    def __init__(self) -> None:
        super().__init__([])
        self.me = self


class Loader:
    """Loads such models. last: the newest."""

    fed = True

    def load(self) -> Any:
        made = Cyclic()
        self.last = weakref.ref(made)
        return made


def speak_and_unload(warm_up: bool) -> None:
    """Open and unload models in a process that does nothing else, as the server's."""
    sources = {"one": Loader(), "other": Loader()}
    shelf = Shelf(cast(dict[str, ModelSource], sources), places=1, warm_up=warm_up, freeze=True)
    shelf.open("one")
    shelf.open("other")
    assert gc.get_freeze_count() > 10_000
    shelf.unload("one")
    assert sources["one"].last() is None
    assert sources["other"].last() is not None
    assert gc.get_freeze_count() > 10_000
    shelf.close()
    assert gc.get_freeze_count() < 10_000  # Python 3.12 keeps some of its own there
    assert sources["other"].last() is None


@pytest.mark.parametrize("warm_up", [True, False])
def test_models_that_stay_are_not_looked_at_and_those_that_go_are_freed(warm_up: bool) -> None:
    process = get_context("spawn").Process(target=speak_and_unload, args=(warm_up,))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_process_that_does_more_is_left_as_it_is() -> None:
    """Without `freeze`, models that go are freed all the same."""
    loader = Loader()
    shelf = Shelf(cast(dict[str, ModelSource], {"one": loader}), places=1, warm_up=False)
    before = gc.get_freeze_count()
    shelf.open("one")
    assert gc.get_freeze_count() == before
    shelf.close()
    assert gc.get_freeze_count() == before
    assert loader.last() is None


class Stuck(Chorus):
    """A batch that does not close."""

    def close(self) -> None:
        raise RuntimeError("stuck")


def test_a_batch_that_does_not_close_is_logged_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf(cast(dict[str, ModelSource], {"one": Loader()}), places=1, warm_up=False)
    found = shelf.open("one")
    broken = found.session = cast(Any, Stuck(1, []))
    shelf.reopen(found)
    assert found.session is not broken
    assert shelf.get("one") is found
    [record] = caplog.records
    assert record.getMessage() == "serving: the broken batch of one does not close"
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "stuck"
    shelf.close()
