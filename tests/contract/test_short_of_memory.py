"""Shared calls of running batches that lack memory, on both sides.

The speech of each request is as by itself; only one whose own call lacks memory fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.contract.speakers import every_side, request, speaker, to_end
from tests.hosts import LateStream
from tests.metal_errors import LARGER
from tts_core.codecs import dac_calls
from tts_core.errors import ResourceError
from tts_core.results import merge
from tts_core.serving.session import Failed, Part

pytestmark = pytest.mark.rest

# as each side raises it
ERRORS: dict[str, Exception] = {
    "torch": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "mlx": RuntimeError(LARGER),  # told at once; errors that come late in tests/parity/test_device_errors.py
}
DECODERS = {"dia": "decode", "metavoice": "decode"}  # whose pieces may end together


class Scarce:
    """A call that lacks memory for more than `most` requests. counts: of its calls.

    fail_after: the first call after one of so many lacks memory in any case; 0 for none.
    """

    def __init__(self, call: Any, error: Exception, most: int):
        self.call, self.error, self.most = call, error, most
        self.counts: list[int] = []
        self.fail_after = 0

    def __call__(self, ones: Sequence[Any], *others: Any, **named: Any) -> Any:
        self.counts.append(len(ones))
        if len(ones) > self.most:
            raise self.error
        if self.fail_after and self.fail_after in self.counts:
            self.fail_after = 0
            raise self.error
        return self.call(ones, *others, **named)


@dataclass
class Countdown:
    """Calls that are left before one fails."""

    calls: int

    def ends(self) -> bool:
        """Count a call; True for the one that fails."""
        self.calls -= 1
        return self.calls == 0


def run(session: Any, asked: Sequence[Any]) -> list[Any]:
    """Speak requests at once. Returns the speech of each, or its error."""
    keys = [session.join(each) for each in asked]
    parts: dict[int, list[Any]] = {key: [] for key in keys}
    failed: dict[int, Exception] = {}
    for event in to_end(session):
        assert event.key not in failed, "an event of a request that has left"
        if isinstance(event, Failed):
            failed[event.key] = event.error
        else:
            assert isinstance(event, Part)
            parts[event.key].append(event.result)
    return [failed.get(key) or merge(parts[key]) for key in keys]


@pytest.mark.parametrize("model", DECODERS)
@every_side
def test_windows_of_several_texts(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two texts that end together, then again with one whose own window does not fit."""
    monkeypatch.setattr(dac_calls, "ONE_BY_ONE", ())  # streams of Dia share calls
    pipeline, name = speaker(model, side), DECODERS[model]
    asked = [request(model, side, "The inn is near.", seed=3) for _ in range(2)]
    alone = merge(list(pipeline.speak(asked[0])))
    scarce = Scarce(getattr(pipeline.engine, name), ERRORS[side], most=1)
    monkeypatch.setattr(pipeline.engine, name, scarce)
    session = pipeline.session(2)
    for found in run(session, asked):
        np.testing.assert_array_equal(found.codes, alone.codes)
        assert len(found.audio) == len(alone.audio)
    assert {1, 2} <= set(scarce.counts)
    scarce.fail_after = max(scarce.counts)  # of Dia's the one with two windows of each
    scarce.counts.clear()
    lost, found = run(session, asked)
    assert isinstance(lost, ResourceError)
    np.testing.assert_array_equal(found.codes, alone.codes)
    session.close()


@pytest.mark.parametrize("model", ["dia2", "qwen3"])
@every_side
def test_a_window_of_a_stream(model: str, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call of the codec lacks memory, it is made again from the state before it."""
    pipeline = speaker(model, side)
    monkeypatch.setattr(pipeline.engine, "host", LateStream(pipeline.engine.host))
    codec, asked = pipeline.engine.codec, [request(model, side, "The inn is near.", seed=3) for _ in range(2)]
    decode, left = codec.decode_window, Countdown(0)

    def decode_window(*args: Any) -> Any:
        if left.ends():
            raise ERRORS[side]
        return decode(*args)

    monkeypatch.setattr(codec, "decode_window", decode_window)
    session = pipeline.session(2)
    known, count = run(session, asked), -left.calls
    assert count >= 6
    for place in range(1, count + 1):
        left.calls = place
        for found, wanted in zip(run(session, asked), known, strict=True):
            np.testing.assert_array_equal(found.audio, wanted.audio)
        assert place - left.calls == count + 1
    session.close()
