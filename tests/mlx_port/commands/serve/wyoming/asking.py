"""Wyoming's own client against a server of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from wyoming.audio import AudioChunk, AudioStart
from wyoming.client import AsyncTcpClient
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.tts import SynthesizeChunk, SynthesizeStart, SynthesizeStop

from mlx_port.commands.serve.settings import Settings
from tests.mlx_port.commands.serve.served import SOON, Served, served

Found = TypeVar("Found")


@contextmanager
def wyoming_server(folder: Path, source: Any = None, settings: Settings | None = None) -> Iterator[Served]:
    """Serve over both protocols."""
    settings = replace(settings or Settings(), wyoming=("127.0.0.1", 0))
    with served(folder, source, settings=settings) as server:
        yield server


def address(server: Served) -> tuple[str, int]:
    """Where it listens for Wyoming."""
    assert server.server.beside is not None
    return server.server.beside.address


def asked(server: Served, talk: Callable[[AsyncTcpClient], Awaitable[Found]]) -> Found:
    """Connect, and let a coroutine talk."""

    async def run() -> Found:
        async with asyncio.timeout(SOON):
            async with AsyncTcpClient(*address(server)) as client:
                return await talk(client)

    return asyncio.run(run())


def answered(server: Served, *sent: Event, end: str) -> list[Event]:
    """Send events; take what comes up to one of a type."""

    async def talk(client: AsyncTcpClient) -> list[Event]:
        for event in sent:
            await client.write_event(event)
        return await until_type(client, end)

    return asked(server, talk)


def described(server: Served) -> Info:
    """What the server says of itself, by the package's types."""
    [event] = answered(server, Describe().event(), end="info")
    return Info.from_event(event)


def streamed(place: tuple[str, int], *texts: str) -> bytes:
    """Speak text that streams in, and return its sound."""

    async def run() -> list[Event]:
        async with asyncio.timeout(SOON):
            async with AsyncTcpClient(*place) as client:
                await client.write_event(SynthesizeStart().event())
                for text in texts:
                    await client.write_event(SynthesizeChunk(text=text).event())
                await client.write_event(SynthesizeStop().event())
                return await until_type(client, "synthesize-stopped")

    found = asyncio.run(run())
    assert found[-1].type == "synthesize-stopped", found[-1]
    return sound(found[:-1])


async def until_type(client: AsyncTcpClient, kind: str) -> list[Event]:
    """Take events up to one of a type, or to an error or the end."""
    return [event async for event in events(client, kind)]


async def events(client: AsyncTcpClient, kind: str) -> AsyncIterator[Event]:
    while (event := await client.read_event()) is not None:
        yield event
        if event.type in (kind, "error"):
            return


def sound(found: list[Event]) -> bytes:
    """The sound between audio-start and audio-stop, checked."""
    start, *chunks = [event for event in found if event.type.startswith("audio-")][:-1]
    begin = AudioStart.from_event(start)
    assert (begin.rate, begin.width, begin.channels) == (24000, 2, 1)
    parts = [AudioChunk.from_event(chunk) for chunk in chunks]
    assert all((part.rate, part.width, part.channels) == (24000, 2, 1) for part in parts)
    return b"".join(part.audio for part in parts)
