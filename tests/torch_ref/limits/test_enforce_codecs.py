"""Codecs of full size under the rules of MPS: our layers break no rule.

Of codecs of small size no number changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import YARDSTICK
from tests.tiny.every_codec import DECODED, ENCODED, ENCODERS, WEIGHTS, codes_for
from tests.tiny.inputs import normal
from tests.torch_ref.limits.full_size import codec, codes, network, zeros
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.codecs.band_split import match_levels, split_bands
from torch_ref.codecs.mbd import DiffusionUnet
from torch_ref.limits import Backend, enforce
from torch_ref.metavoice.speaker_encoder import SpeakerEncoder
from tts_core.codecs.mbd import PUBLISHED_UNET
from tts_core.metavoice.config import SpeakerEncoderConfig

pytestmark = pytest.mark.rest

EVERY = pytest.mark.parametrize("backend", stand_ins("with LSTM"), ids=str)
FEW = 4  # frames in runs with an LSTM, which goes step by step


def dac() -> None:
    """Five seconds in one run, without the codec's windows: the convolutions stay within the limits."""
    made, frames = codec("dac"), 431
    hop = made.config.hop_length
    assert made.decode_frames(codes(1, 9, frames), 0, frames).shape == (1, frames * hop)
    assert made.encode(zeros(1, frames * hop)).shape == (1, 9, frames)


def encodec() -> None:
    """Convolutions before the encoder's LSTM and after the decoder's, over 68,800 samples at once."""
    made, frames = codec("encodec"), 215
    hop = made.config.hop_length
    x = zeros(1, 1, frames * hop)
    for layer in made.encoder.layers[: made.encoder.middle]:
        x = layer(x)
    assert x.shape == (1, made.config.width, frames)
    for layer in made.decoder.layers[made.decoder.middle + 1 :]:
        x = layer(x)
    assert x.shape == (1, 1, frames * hop)
    assert made.encode(zeros(1, FEW * hop), 8).shape == (1, 8, FEW)
    assert made.decode(codes(1, 8, FEW)).shape == (1, FEW * hop)


def streamed(name: str, *batches: int) -> None:
    """A window and more, 134,400 samples; then the first piece of a stream."""
    made, frames = codec(name), 70
    hop, books = made.config.hop_length, made.config.n_codebooks
    for batch in batches:
        found = made.encode(zeros(batch, frames * hop - 5), *([books] if name == "mimi" else []))
        assert found.shape == (batch, books, frames)
        assert made.decode(found).shape == (batch, frames * hop)
        assert made.decode_window(found[..., :1], None)[0].shape == (batch, hop)


def vocos() -> None:
    assert codec("vocos").decode(codes(1, 8, 215), 1).shape == (1, 215 * 320)


def mbd() -> None:
    """Four seconds: one call of the network, then the band split and the matching of its result."""
    length, made = 96_000, network(DiffusionUnet, PUBLISHED_UNET, 1000)
    wave = made(zeros(1, 1, length), 999, zeros(1, 128, length // 320))[:, 0]
    assert split_bands(wave, 8, 24_000).shape == (1, 8, length)
    assert match_levels(wave[0], wave[0], 24_000).shape == (length,)


RUNS: dict[str, Callable[[], None]] = {
    "dac": dac,
    "encodec": encodec,
    "mimi": lambda: streamed("mimi", 1),
    "vocos": vocos,
    "qwen3_codec": lambda: streamed("qwen3_codec", 1, 2),
    "mbd": mbd,
}


@EVERY
@pytest.mark.parametrize("name", RUNS)
@torch.inference_mode()
def test_full_size(name: str, backend: Backend) -> None:
    with enforce(backend) as watch:
        RUNS[name]()
    assert watch.calls > 0


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2")])
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_same_numbers_under_the_rules(name: str, release: str, macos: str) -> None:
    made: Any = YARDSTICK.network(name, WEIGHTS[name]())

    def run() -> list[np.ndarray]:
        found = [made.decode(codes_for(made), *DECODED.get(name, ())).numpy()]
        if name in ENCODERS:
            found.append(made.encode(normal(1, 2, 700), *ENCODED.get(name, ())).numpy())
        return found

    plain = run()
    with enforce(Backend("mps", release, macos)) as watch:
        limited = run()
    assert watch.calls > 0
    np.testing.assert_allclose(limited[0], plain[0], rtol=0, atol=2e-5 * np.abs(plain[0]).max())
    np.testing.assert_array_equal(limited[1:], plain[1:])


@EVERY
def test_a_speaker_of_metavoice_stays_the_same(backend: Backend) -> None:
    """Two slices of its LSTM."""
    torch.manual_seed(0)
    encoder = SpeakerEncoder(SpeakerEncoderConfig(11, 10, 3, 7))
    samples = [normal(1, 34_000, scale=0.1)]
    plain = encoder.embed(samples)
    with enforce(backend) as watch:
        found = encoder.embed(samples)
    assert watch.calls > 0
    np.testing.assert_allclose(found, plain, rtol=0, atol=1e-5)
