"""Streams and sessions compute the convolutions of `generate`, and those of the codec's delay.

Published, DAC has a delay of 10 frames (tests/tts_core/codecs/test_dac.py), so at most 11 more are computed;
causal codecs have none.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.contract.speakers import given, request, speaker
from tests.contract.test_short_of_memory import run
from tts_core.results import merge

TEXT = "The old inn by the river is near, and the road goes on to the hills. " * 8


class Counted:
    """A codec's decodes. products: of its convolutions so far, times two."""

    def __init__(self, codec: Any, monkeypatch: pytest.MonkeyPatch):
        self.products = 0
        for name in ("decode_window", "decode_whole"):
            if hasattr(codec, name):
                monkeypatch.setattr(codec, name, partial(self._counted, getattr(codec, name)))

    def _counted(self, call: Any, *args: Any) -> Any:
        with FlopCounterMode(display=False) as counter:
            made = call(*args)
        counts = counter.get_flop_counts()["Global"]
        self.products += sum(count for name, count in counts.items() if "convolution" in str(name))
        return made


@pytest.mark.parametrize("frames", [60, pytest.param(200, marks=pytest.mark.rest)])
@pytest.mark.parametrize("model", ["dia", "dia2", "qwen3"])
def test_convolutions(model: str, frames: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, changes = speaker(model, "torch"), {"max_frames": frames, "seed": 1}
    more = 1 + (1 + getattr(pipeline.engine, "lookahead", 0)) / frames
    counted = Counted(pipeline.engine.codec, monkeypatch)
    whole = pipeline.generate(TEXT, **given(model, **changes))
    assert whole.codes.shape[1] == frames
    known, counted.products = counted.products, 0
    assert merge(list(pipeline.stream(TEXT, **given(model, **changes)))).codes.shape[1] == frames
    assert known <= counted.products <= more * known
    counted.products, session = 0, pipeline.session(2)
    spoken = run(session, [request(model, "torch", TEXT, **changes) for _ in range(2)])
    assert [one.codes.shape[1] for one in spoken] == [frames] * 2
    assert 2 * known <= counted.products <= more * 2 * known
    session.close()
