"""Dia's streams beside the steps, on a host like CUDA's: they share calls of the rehearsed shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.hosts import LateStream
from tests.sides import YARDSTICK
from tests.tiny.dia import compose
from tests.tiny.dia_served import requests, served
from tests.tiny.networks import dia_config, tiny
from tts_core.results import merge

pytestmark = pytest.mark.rest


class OnCuda(LateStream):
    """A host whose codec's streams share calls beside the steps."""

    backend = "torch-cuda"


def test_streams_share_calls_beside_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the rehearsed shapes only; texts sound as alone, up to rounding."""
    weights = tiny(dia_config(positions=400, text_positions=300), seed=3, eos=1.3)
    pipeline = compose(YARDSTICK, weights, tiny("dac"))
    asked, shapes = requests(pipeline), list[tuple[int, int]]()
    engine, expected = pipeline.engine, [merge(list(pipeline.speak(one))) for one in asked]
    decode_window = engine._decode_window

    def noted(codes: Any, *given: Any) -> Any:
        shapes.append((codes.shape[0], codes.shape[2]))
        return decode_window(codes, *given)

    monkeypatch.setattr(engine, "_decode_window", noted)
    monkeypatch.setattr(engine, "host", OnCuda(engine.host))
    policy = engine.windows(None, streamed=True)
    engine.prepare(policy, 5)
    rehearsed = [*shapes]
    assert len(rehearsed) == 2 * len({*rehearsed})
    for one, other in zip(served(pipeline, asked, places=5, seed=1), expected, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_allclose(one.audio, other.audio, rtol=0, atol=1e-3)
    used = shapes[len(rehearsed) :]
    assert {*used} <= {*rehearsed}
    assert max(rows for rows, _ in used) > 1
