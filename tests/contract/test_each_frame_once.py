"""Streams and sessions compute the convolutions of `generate`, and at most those of 11 frames a text more."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.contract.speakers import given, request, speaker
from tests.contract.test_short_of_memory import run
from tts_core.results import join

TEXT = "The old inn by the river is near, and the road goes on to the hills. " * 8


class Counted:
    """A codec's decode. products: of its convolutions so far, times two."""

    def __init__(self, call: Any):
        self.call, self.products = call, 0

    def __call__(self, *args: Any) -> Any:
        with FlopCounterMode(display=False) as counter:
            made = self.call(*args)
        counts = counter.get_flop_counts()["Global"]
        self.products += sum(count for name, count in counts.items() if "convolution" in str(name))
        return made


@pytest.mark.parametrize("frames", [60, pytest.param(200, marks=pytest.mark.rest)])
@pytest.mark.parametrize("model", ["dia2", "qwen3"])
def test_at_most_eleven_frames_more(model: str, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, changes = speaker(model, "torch"), {"max_frames": frames, "seed": 1}
    counted = Counted(pipeline.engine.codec.decode_piece)
    monkeypatch.setattr(pipeline.engine.codec, "decode_piece", counted)
    whole = pipeline.generate(TEXT, **given(model, **changes))
    assert whole.codes.shape[1] == frames
    known, counted.products = counted.products, 0
    assert join(list(pipeline.stream(TEXT, **given(model, **changes)))).codes.shape[1] == frames
    assert known <= counted.products <= (1 + 11 / frames) * known
    counted.products, session = 0, pipeline.session(2)
    spoken = run(session, [request(model, "torch", TEXT, **changes) for _ in range(2)])
    assert [one.codes.shape[1] for one in spoken] == [frames] * 2
    assert 2 * known <= counted.products <= (1 + 11 / frames) * 2 * known
    session.close()
