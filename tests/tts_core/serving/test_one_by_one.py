"""A session of one place: the pipeline's stream, part by part."""

import threading
from typing import Any, cast

import numpy as np
import pytest

from tests.tts_core.serving.talkers import Said, Talker, sound
from tts_core.errors import CancelledError, GenerationError, UsageError
from tts_core.serving.one_by_one import OneByOne
from tts_core.serving.session import Failed, Part


def session() -> OneByOne:
    return OneByOne(cast(Any, Talker()), lambda: Said(("yes",)))


def test_its_parts_are_the_streams() -> None:
    batch = session()
    assert batch.waiting
    assert batch.fits(Said(("a",)))
    key = batch.join(Said(("a", "b")))
    assert not batch.fits(Said(("c",)))
    parts = [event for _ in range(2) for event in batch.step()]
    assert [type(one) for one in parts] == [Part, Part]
    assert {one.key for one in parts} == {key}
    heard = [one.result.audio for one in parts if isinstance(one, Part)]
    np.testing.assert_array_equal(np.concatenate(heard), np.concatenate([sound("a"), sound("b")]))
    assert batch.running == 0
    assert batch.step() == []
    assert batch.join(Said(("c",))) != key


def test_a_request_that_fails_leaves() -> None:
    batch = session()
    key = batch.join(Said(("a", "choke", "b")))
    batch.step()
    [failed] = batch.step()
    assert isinstance(failed, Failed)
    assert failed.key == key
    assert isinstance(failed.error, GenerationError)
    assert batch.waiting


def test_it_is_cancelled_inside_its_stream_or_between_steps() -> None:
    batch, cancel = session(), threading.Event()
    batch.join(Said(("a", "b")), cancel=cancel)
    cancel.set()
    [failed] = batch.step()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, CancelledError)
    key = batch.join(Said(("a", "b")))
    batch.leave(key + 1)
    assert batch.running == 1
    batch.leave(key)
    assert batch.step() == []


def test_it_takes_no_text_later() -> None:
    batch = session()
    with pytest.raises(UsageError, match="reads its text at once"):
        batch.join(Said(("a",)), more=True)
    assert batch.running == 0
