"""The queue between a speech and its reader."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest

from mlx_port.commands.serve import backlog as module
from mlx_port.commands.serve.backlog import Backlog


async def given(pieces: Sequence[bytes], fault: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
    if fault is not None:
        raise fault


async def taken(pieces: Sequence[bytes], memory: int, size: int, *, wait: bool) -> list[bytes]:
    with Backlog(memory) as backlog:
        filling = asyncio.ensure_future(backlog.fill(given(pieces)))
        if wait:
            await filling
        frames = [frame async for frame in backlog.frames(size)]
        await filling
    return frames


@pytest.mark.parametrize("memory", [1, 10, 1000, 100_000])
@pytest.mark.parametrize("size", [1, 7, 1000, 100_000])
@pytest.mark.parametrize("wait", [False, True])
def test_bytes_come_out_in_order(memory: int, size: int, wait: bool) -> None:
    """From memory and from the file, while they arrive and after that."""
    random = np.random.default_rng(0)
    pieces = [random.bytes(length) for length in (0, 1, 999, 0, 5, 1000, 1, 2)]
    frames = asyncio.run(taken(pieces, memory, size, wait=wait))
    assert b"".join(frames) == b"".join(pieces)
    assert max(map(len, frames)) <= size


def test_an_error_comes_after_the_bytes_before_it() -> None:
    async def run() -> None:
        with Backlog() as backlog:
            filling = asyncio.ensure_future(backlog.fill(given([b"ab", b"c"], ValueError("broken"))))
            assert b"".join([frame async for frame in backlog.frames(9)]) == b"abc"
            with pytest.raises(ValueError, match="broken"):
                await filling

    asyncio.run(run())


def test_memory_is_bounded() -> None:
    """Of 64 megabytes that nobody reads."""

    async def run() -> None:
        with Backlog() as backlog:
            await backlog.fill(given([bytes(1 << 16)] * 1024))
            assert sum([len(frame) async for frame in backlog.frames(1 << 14)]) == 64 << 20

    tracemalloc.start()
    try:
        asyncio.run(run())
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("length", "is_threaded"), [(10, False), (11, True)])
def test_only_bytes_beyond_the_memory_take_a_thread(
    length: int, is_threaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, run_sync = [], module.to_thread.run_sync

    async def counted(work: Any) -> Any:
        calls.append(work)
        return await run_sync(work)

    monkeypatch.setattr(module.to_thread, "run_sync", counted)
    frames = asyncio.run(taken([bytes(4), bytes(length - 4)], 10, 100, wait=True))
    assert b"".join(frames) == bytes(length)
    assert bool(calls) == is_threaded
