"""A call of the codec that fails leaves its streams as they were."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.hosts import LateHost
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import GenerationError
from tts_core.nn.beside import Done
from tts_core.speaking.net import StreamNet
from tts_core.speaking.speech import CodecMemory, Sound


class Summing:
    """A codec whose samples are the sums of all codes so far. is_silent: of the next call."""

    config, is_silent = SimpleNamespace(sample_rate=8), False

    def decode_piece(self, codes: np.ndarray, states: Any) -> tuple[np.ndarray, list[float]]:
        sums = np.cumsum(codes[:, 0], axis=1) + np.array([[state or 0.0] for state in states])
        silent, self.is_silent = self.is_silent, False
        return sums * (not silent), [0.0 if silent else last for last in sums[:, -1]]


class Host(LateHost):
    """A device that is the host."""

    def to_device(self, array: np.ndarray) -> np.ndarray:
        return array

    def to_host(self, x: np.ndarray) -> np.ndarray:
        return x

    def launch(self, work: Callable[[], Any]) -> Done[list[np.ndarray]]:
        return Done([np.asarray(one, np.float32) for one in work()])


class SummingNet(StreamNet):
    """A net without a network."""

    kinds, facts_of = ("toy", "summing"), lambda configs, documents: None


def windows(memory: CodecMemory, *stops: int) -> list[Sound]:
    codes, starts = np.arange(1, 9, dtype=np.int32)[None], [0, *stops]
    return [Sound(codes[:, start:stop], 0, memory) for start, stop in zip(starts, stops, strict=False)]


@pytest.mark.parametrize("before", [None, np.array([[5, 6, 7]], np.int32)])
def test_a_wrong_sound_is_decoded_again_from_the_state_before_it(before: Any) -> None:
    codec, network = Summing(), SimpleNamespace(config=None)
    make: Any = SummingNet  # which speaks no text
    net = make({"toy": network, "summing": codec}, {}, Host(), make_slots=dict)
    memory, made = CodecMemory(before), list[np.ndarray]()
    for place, window in enumerate(windows(memory, 3, 4, 8)):
        codec.is_silent = place != 1 and before is None
        try:
            made += net.decode([window], CodecPolicy(), lambda: None)
        except GenerationError:
            made += net.decode([window], CodecPolicy(), lambda: None)
    first = 0 if before is None else int(before.sum())
    np.testing.assert_array_equal(np.concatenate(made), first + np.cumsum(np.arange(1, 9)))
