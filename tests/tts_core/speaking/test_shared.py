"""Shared calls that lack memory or time, or give no sound: halves, then one by one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest

from tests.hosts import LateHost
from tests.metal_errors import LARGER, LATE, MEMORY
from tts_core.speaking.windows import shared


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


class Large:
    """An array of a call, in the place of one on a device."""


@pytest.mark.parametrize("words", ["CUDA out of memory. Tried to allocate 2.00 GiB.", LARGER])
def test_halves_then_one_by_one(words: str) -> None:
    calls: list[list[int]] = []

    def call(ones: Sequence[int]) -> list[int]:
        calls.append([*ones])
        if len(ones) > 2:
            raise OutOfMemoryError(words) if "CUDA" in words else RuntimeError(words)
        return [10 * one for one in ones]

    assert shared(LateHost(), call, [1, 2, 3, 4, 5]) == [10, 20, 30, 40, 50]
    assert calls == [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5]]
    assert shared(LateHost(), call, []) == []


def test_the_arrays_of_a_call_that_failed_are_free_before_the_next() -> None:
    alive: list[weakref.ref[Large]] = []

    def call(ones: Sequence[int]) -> list[int]:
        assert not any(found() for found in alive)
        array = Large()
        alive.append(weakref.ref(array))
        if len(ones) > 1:
            raise MemoryError
        return [*ones]

    assert shared(LateHost(), call, [1, 2, 3]) == [1, 2, 3]
    assert len(alive) == 5


@pytest.mark.parametrize("words", LATE)
def test_an_error_that_comes_late_is_raised(words: str) -> None:
    """That of an earlier call, before this one; and that of the call itself, which is not made again."""
    host, calls = LateHost(), []

    def call(ones: Sequence[int]) -> list[int]:
        calls.append([*ones])
        host.errors.append(RuntimeError(words))
        return [*ones]

    with pytest.raises(RuntimeError, match="Command buffer execution failed"):
        shared(host, call, [1, 2, 3])
    assert calls == [[1, 2, 3]]
    host.errors.append(RuntimeError(MEMORY))
    with pytest.raises(RuntimeError, match="Insufficient Memory"):
        shared(host, call, [1, 2])
    assert len(calls) == 1
