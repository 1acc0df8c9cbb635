"""A speech on its way to a client, and one that its request leaves behind."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mlx_port.commands.serve.errors import ApiError
from mlx_port.commands.serve.flow import FRAME, Flow
from mlx_port.commands.serve.settings import Limits
from tts_core.audio.formats.names import FORMATS

RATE = 24_000  # Hz, as pcm's


def part(samples: int) -> Any:
    sound = np.full(samples, 0.5, np.float32)
    return SimpleNamespace(audio=sound, samples=samples, audio_seconds=samples / RATE, sample_rate=RATE)


def received(*parts: Any, limit: float = 900.0) -> list[tuple[int, Any]]:
    """Send parts as pcm; the lengths of the frames, with their parts."""

    async def run() -> list[tuple[int, Any]]:
        left = iter(parts)
        speech = SimpleNamespace(get=lambda timeout: next(left, None), seed=3, cancel=lambda: None)
        service: Any = SimpleNamespace(settings=SimpleNamespace(limits=Limits(audio_seconds=limit)))
        service.order, service.queue = lambda asked: asked, lambda order, notice: speech
        asked: Any = SimpleNamespace(form=FORMATS["pcm"], sample_rate=None, whole=False, warnings=())
        return [(len(data), one) async for data, one in Flow(service, asked).frames()]

    return asyncio.run(run())


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_part_comes_with_its_last_frame(more: int) -> None:
    """A part as long as a frame is one frame."""
    one = part(FRAME // 2 + more)
    frames = [frame for frame in received(one) if frame[0]]
    expected = [(FRAME + 2 * more, one)] if more < 1 else [(FRAME, None), (2, one)]
    assert frames == expected


def test_a_speech_may_be_exactly_as_long_as_the_limit() -> None:
    assert sum(length for length, _ in received(part(RATE), part(RATE), limit=2.0)) == 4 * RATE
    with pytest.raises(ApiError) as caught:
        received(part(RATE), part(RATE + 1), limit=2.0)
    assert caught.value.code == "too_long"


def test_a_speech_starts_with_its_first_sound() -> None:
    """Parts without samples before it are left out; only such parts are an error."""
    one = part(5)
    assert [given for _, given in received(part(0), one) if given is not None] == [one]
    with pytest.raises(ApiError) as caught:
        received(part(0), part(0))
    assert caught.value.code == "no_sound"


def test_a_request_that_is_dropped_while_it_is_queued_keeps_no_place() -> None:
    """The speech is canceled as soon as it is there."""
    cancelled: list[bool] = []

    async def run() -> None:
        service: Any = SimpleNamespace(order=lambda asked: asked)
        asked: Any = SimpleNamespace(warnings=())
        flow = Flow(service, asked)

        def queue(order: Any, notice: Any) -> Any:
            flow.close()  # the client leaves at this moment
            return SimpleNamespace(cancel=lambda: cancelled.append(True))

        service.queue = queue
        await flow.submit()

    asyncio.run(run())
    assert cancelled == [True]
