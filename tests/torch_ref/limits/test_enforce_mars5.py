"""MARS5's whole pipeline under the rules of MPS: every pair of release and system, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tiny.mars5 import SAID, TEXT, pipeline, reference, room
from tests.tiny.recordings import snippet
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.limits import Backend, enforce

pytestmark = pytest.mark.rest

Speech = list[np.ndarray]


@pytest.fixture(scope="module")
def speak() -> Callable[[], Speech]:
    """A shallow and a deep clone from samples: codec, both networks, vocoder."""
    voice = pipeline("torch")
    codes = np.asarray(voice.engine.encode(reference()))

    def run() -> Speech:
        made: Speech = []
        for said in (None, SAID):
            limit = room(voice.engine.vocabulary, TEXT, 8, said=said, codes=codes)
            prompt = snippet(reference(), said)
            result = voice.generate(
                TEXT, prompt=prompt, seed=1, timesteps=2, generate_max_len_override=limit, draws="per class"
            )
            made += [result.codes, result.audio]
        return made

    return run


@pytest.fixture(scope="module")
def plain(speak: Callable[[], Speech]) -> Speech:
    return speak()


@pytest.mark.parametrize("backend", stand_ins("with LSTM"), ids=str)
def test_the_whole_pipeline(speak: Callable[[], Speech], plain: Speech, backend: Backend) -> None:
    with enforce(backend):
        limited = speak()
    for codes, other in zip(limited[::2], plain[::2], strict=True):
        np.testing.assert_array_equal(codes, other)
        assert codes.shape[1] > 0
    for audio, other in zip(limited[1::2], plain[1::2], strict=True):
        np.testing.assert_allclose(audio, other, rtol=0, atol=1e-5)  # attention runs in blocks: rounding
