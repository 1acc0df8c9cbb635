"""A model that one thread loads speaks in others: one after the other, and at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import pytest

from tests.contract.speakers import assert_same_speech, every_model, every_side, folder, given, windows
from tests.sides import SIDES
from tts_core.results import GenerationResult, merge

pytestmark = pytest.mark.rest

TEXT = "The inn is near."
Found = TypeVar("Found")


def in_threads(*works: Callable[[], Found]) -> list[Found]:
    """Run works at once, each in a thread of its own. Raises the first error."""
    found: list[Any] = [None] * len(works)
    begun = threading.Barrier(len(works))

    def run(place: int) -> None:
        begun.wait()
        try:
            found[place] = works[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in found:
        if isinstance(one, Exception):
            raise one
    return found


@every_model
@every_side
def test_a_model_speaks_in_any_thread(model: str, side: str) -> None:
    def load() -> Any:
        return import_module(SIDES[side]).load(folder(model))

    [pipeline] = in_threads(load)

    def whole() -> GenerationResult:
        return pipeline.generate(TEXT, seed=3, **given(model))

    def streamed() -> GenerationResult:
        return merge(list(pipeline.stream(TEXT, seed=3, **given(model))))

    [first] = in_threads(whole)
    [second] = in_threads(streamed)
    for one in (second, *in_threads(whole, streamed)):
        assert_same_speech(one, first, windows=windows(model))


@every_side
def test_a_second_thread_waits_for_a_part(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks run in one thread at a time, and in turns while two threads stream."""
    pipeline = import_module(f"{SIDES[side]}.api").embedded_voice()
    inside, most = 0, 0
    decode = pipeline.engine.decode

    def noted(*given: Any, **more: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        try:
            return decode(*given, **more)
        finally:
            inside -= 1

    monkeypatch.setattr(pipeline.engine, "decode", noted)
    streams = [lambda: len(list(pipeline.stream(TEXT, seed=1, max_frames=12)))] * 3
    assert min(in_threads(*streams)) >= 1
    assert most == 1
