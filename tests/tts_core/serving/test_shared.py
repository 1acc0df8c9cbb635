"""Shared calls that lack memory: halves, then one by one."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest

from tts_core.errors import ResourceError
from tts_core.serving.shared import shared


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


class Large:
    """An array of a call, in the place of one on a device."""


def test_halves_then_one_by_one() -> None:
    calls: list[list[int]] = []

    def call(ones: Sequence[int]) -> list[int]:
        calls.append([*ones])
        if len(ones) > 2:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return [10 * one for one in ones]

    assert shared(call, [1, 2, 3, 4, 5]) == [10, 20, 30, 40, 50]
    assert calls == [[1, 2, 3, 4, 5], [1, 2], [3, 4, 5], [3], [4, 5]]
    assert shared(call, []) == []


def test_only_one_that_lacks_memory_by_itself_fails() -> None:
    def call(ones: Sequence[int]) -> list[int]:
        if 3 in ones:
            raise RuntimeError("[malloc] Unable to allocate 8000000000 bytes.")
        return [*ones]

    one, two, three, four = shared(call, [1, 2, 3, 4])
    assert (one, two, four) == (1, 2, 4)
    assert isinstance(three, ResourceError)
    assert str(three).startswith("memory: not enough ([malloc] Unable to allocate 8000000000 bytes.); use a")


def test_another_error_is_raised_at_once() -> None:
    calls = []

    def call(ones: Sequence[int]) -> list[int]:
        calls.append(ones)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        shared(call, [1, 2])
    assert len(calls) == 1


def test_the_arrays_of_a_call_that_failed_are_free_before_the_next() -> None:
    alive: list[weakref.ref[Large]] = []

    def call(ones: Sequence[int]) -> list[int]:
        assert not any(found() for found in alive)
        array = Large()
        alive.append(weakref.ref(array))
        if len(ones) > 1:
            raise MemoryError
        return [*ones]

    assert shared(call, [1, 2, 3]) == [1, 2, 3]
    assert len(alive) == 5
