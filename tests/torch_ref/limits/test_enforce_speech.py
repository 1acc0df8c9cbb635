"""Every model, small, speaks under the rules of MPS as on the CPU; and the pairs that stand for all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.limits.workloads import pairs
from tests.contract.speakers import SMALL, TEXTS, alone, request
from tests.parity.recorded_runs import DEEP, RECORDING
from tests.tiny.recordings import snippet
from tests.torch_ref.limits.stand_ins import Layers, stand_ins, stands_for
from torch_ref.limits import Backend, enforce
from tts_core import models
from tts_core.results import GenerationResult

pytestmark = pytest.mark.rest


def asked(model: str) -> list[Any]:
    """Few frames of several voices and settings."""
    small = SMALL[model]
    voices = (snippet(RECORDING), DEEP) if model == "mars5" else small.voices
    settings: tuple[Mapping[str, Any], ...] = ({}, small.settings[0], small.settings[-1])
    few: dict[str, Any] = {"max_frames": 6, "seed": 1}
    if model == "mars5":
        few["generate_max_len_override"] = 64  # a deep clone's reference takes some
    return [
        request(model, "torch", text, prompt=voices[place % len(voices)], **few, **own)
        for place, (text, own) in enumerate(zip(TEXTS, settings, strict=False))
    ]


@cache
def plain(model: str) -> list[GenerationResult]:
    return [alone(model, "torch", one) for one in asked(model)]


PAIRS = [
    (model, backend)
    for model in models.NAMES
    for backend in stand_ins("with LSTM" if model in ("mars5", "metavoice") else "without LSTM")
]


@pytest.mark.parametrize(("model", "backend"), PAIRS, ids=str)
def test_every_model_speaks(model: str, backend: Backend) -> None:
    expected = plain(model)
    with enforce(backend) as watch:
        limited = [alone(model, "torch", one) for one in asked(model)]
    assert watch.calls > 1000
    for one, other in zip(limited, expected, strict=True):
        np.testing.assert_array_equal(one.codes, other.codes)
        np.testing.assert_allclose(one.audio, other.audio, rtol=0, atol=1e-5)  # attention in blocks


@pytest.mark.parametrize("layers", ["with LSTM", "without LSTM"])
def test_every_pair_has_a_stand_in(layers: Layers) -> None:
    """One with the same choices of torch and our layers and all its rules; no stand-in is superfluous."""
    kept = stand_ins(layers)
    for pair in pairs():
        assert any(stands_for(one, pair, layers) for one in kept), pair
    assert len(kept) == {"with LSTM": 11, "without LSTM": 8}[layers]
    for one in kept:
        assert not any(stands_for(other, one, layers) for other in kept if other is not one), one
