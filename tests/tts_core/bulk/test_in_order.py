"""Calls in threads whose results keep their order."""

from __future__ import annotations

import threading

import pytest

from tts_core.bulk.speaking import InOrder


def test_results_keep_their_order() -> None:
    first, results = threading.Event(), InOrder[str](2, most=9)
    results.begin(lambda: "first" if first.wait(9) else "never")
    results.begin(lambda: "second")
    results.add("third")
    assert results.ended(wait=False) == []
    assert len(results) == 3
    first.set()
    assert results.ended(wait=True) == ["first", "second", "third"]
    assert not results


def test_too_many_calls_are_waited_for() -> None:
    results = InOrder[int](1, most=2)
    for number in range(4):
        results.begin(lambda number=number: number)
    assert results.ended(wait=False)[:2] == [0, 1]


def test_an_error_is_raised() -> None:
    def broken() -> int:
        raise ValueError("broken")

    results = InOrder[int](1, most=2)
    results.begin(broken)
    with pytest.raises(ValueError, match="broken"):
        results.ended(wait=True)
