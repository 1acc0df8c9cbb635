"""Dia and DAC under the rules of MPS: our layers break no rule, torch's own layers those named here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.limits.workloads import pairs
from tests.torch_ref.limits.stand_ins import Layers, stand_ins, stands_for
from torch_ref.api import embedded_voice
from torch_ref.codecs.dac import Dac
from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce, observe
from torch_ref.limits.backend import parse
from tts_core.codecs.dac import DAC_44KHZ
from tts_core.prompt import Prompt

pytestmark = pytest.mark.rest

FRAMES = 431  # 5 s of the 44.1 kHz codec
CONVOLUTION = {"conv-65536", "conv-transpose-65536"}


@pytest.fixture(scope="module")
def full_size() -> Dac:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return Dac(DAC_44KHZ)


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that ignore the device's limits."""
    monkeypatch.setattr(conv, "longest_convolution", lambda device: None)


def decode(codec: Dac) -> torch.Tensor:
    return codec.decode_frames(torch.zeros(1, 9, FRAMES, dtype=torch.int32, device="meta"), 0, FRAMES)


def encode(codec: Dac) -> torch.Tensor:
    return codec.encode(torch.zeros(1, FRAMES * DAC_44KHZ.hop_length, device="meta"))


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_five_seconds_of_full_size_dac(full_size: Dac, backend: Backend) -> None:
    """In one run without the codec's windows: the convolutions themselves stay within the limits."""
    with enforce(backend):
        assert decode(full_size).shape == (1, FRAMES * DAC_44KHZ.hop_length)
        assert encode(full_size).shape == (1, 9, FRAMES)


@pytest.mark.usefixtures("unlimited")
@pytest.mark.parametrize("backend", pairs(), ids=str)
def test_without_windows_the_convolutions_break_there(full_size: Dac, backend: Backend) -> None:
    with observe(backend) as seen:
        decode(full_size)
    assert set(seen.broken) == (CONVOLUTION if parse(backend.macos or "0") < (15, 1) else set())


@pytest.fixture(scope="module")
def speak() -> Callable[[], list[np.ndarray]]:
    """One text sampled, a batch with a prompt and a text without, and the codec both ways."""
    voice = embedded_voice()
    rng = np.random.default_rng(0)
    shape = voice.config.decoder_config.num_channels, 4
    codes = rng.integers(0, voice.config.eos_token_id, shape).astype(np.int32)
    prompt = Prompt.of(text="[S1] Before.", codes=codes)

    def run() -> list[np.ndarray]:
        result = voice.generate("[S1] Hello there.", seed=1, max_frames=3)
        batch = voice.generate_codes(["[S2] One.", "[S1] And another."], [prompt, None], seed=2, max_frames=2)
        heard = np.asarray(voice.engine.codec.encode(result.audio[None]))
        return [result.audio, result.codes, *batch, heard]

    return run


@pytest.fixture(scope="module")
def plain(speak: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
    return speak()


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_the_embedded_voice_speaks(
    speak: Callable[[], list[np.ndarray]], plain: list[np.ndarray], backend: Backend
) -> None:
    """Codes as on the CPU."""
    with enforce(backend):
        limited = speak()
    np.testing.assert_allclose(limited[0], plain[0], rtol=0, atol=1e-5)  # attention runs in blocks: rounding
    for one, other in zip(limited[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(one, other)


def test_neither_network_has_an_lstm() -> None:
    voice = embedded_voice()
    layers = [*voice.engine.network.modules(), *voice.engine.codec.modules()]
    assert not any(isinstance(layer, torch.nn.LSTM) for layer in layers)


@pytest.mark.parametrize("layers", ["with LSTM", "without LSTM"])
def test_every_pair_has_a_stand_in(layers: Layers) -> None:
    """One with the same choices of torch and our layers and all its rules; no stand-in is superfluous."""
    kept = stand_ins(layers)
    for pair in pairs():
        assert any(stands_for(one, pair, layers) for one in kept), pair
    assert len(kept) == {"with LSTM": 11, "without LSTM": 8}[layers]
    for one in kept:
        assert not any(stands_for(other, one, layers) for other in kept if other is not one), one


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("2.12.1", "15.2"), ("2.12.1", "27.0")),  # lacks a rule
        (("2.11.0", "14.5"), ("2.12.1", "14.5")),  # another release, so also other rules of attention
        (("2.12.1", "14.5"), ("2.12.1", "15.2")),  # convolutions of any size
        (("2.12.1", "14.5"), ("2.12.1", "15.0")),  # torch's LSTM
    ],
)
def test_who_stands_for_nobody(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert not stands_for(Backend("mps", *one), Backend("mps", *other), "with LSTM")
