"""Qwen3-TTS of full widths under the rules of MPS: our layers break no rule, and change no number."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.limits.workloads import pairs
from tests.sides import YARDSTICK
from tests.tiny.inputs import normal
from tests.tiny.qwen3 import codec_config, codec_weights, qwen3_config, qwen3_weights, speaker_config
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.codecs.qwen3_codec import Qwen3Codec
from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce, observe
from torch_ref.qwen3.qwen3 import Qwen3
from torch_ref.qwen3.slots import Qwen3Slots
from torch_ref.qwen3.speaker_encoder import SpeakerEncoder
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.nn.noise import HostNoise
from tts_core.qwen3.config import BASE, Qwen3Config
from tts_core.qwen3.layout import Qwen3Recording, build
from tts_core.qwen3.rows import Qwen3Joining
from tts_core.qwen3.sampling import Qwen3Choice, Qwen3Sampling
from tts_core.qwen3.spec import qwen3

pytestmark = pytest.mark.rest

PUBLISHED = qwen3("1b7", BASE)
# full widths; more layers would repeat the same calls
WIDE = replace(
    PUBLISHED,
    talker=replace(PUBLISHED.talker, num_hidden_layers=1),
    predictor=replace(PUBLISHED.predictor, num_hidden_layers=1),
)
FRAMES = 70  # of the codec, a window and more: 134,400 samples, over 65,536
EVERY = pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
SAMPLINGS = (
    Qwen3Sampling(),
    Qwen3Sampling(Qwen3Choice(top_k=0, top_p=0.9), Qwen3Choice(temperature=1.3), 1.0),
    Qwen3Sampling(Qwen3Choice(is_greedy=True), Qwen3Choice(is_greedy=True), 1.2),
)


def joining(config: Qwen3Config, seed: int, words: int, frames: int) -> Qwen3Joining:
    """A text that continues a recording, if it has frames."""
    random = np.random.default_rng(seed)
    recording, codes, speaker = None, None, None
    if config.mode == BASE:
        speaker = normal(seed, config.talker.hidden_size)
    if frames:
        recording = Qwen3Recording(tuple(random.integers(0, 200, 9).tolist()), frames)
        shape = config.n_codebooks, frames
        codes = random.integers(0, config.codebook_size, shape).astype(np.int32)
    ids = random.integers(0, 200, words).tolist()
    layout = build(config, ids, language=None, streamed=bool(seed % 2), recording=recording)
    return Qwen3Joining(layout, SAMPLINGS[seed % len(SAMPLINGS)], HostNoise(seed), speaker, codes)


@pytest.fixture(scope="module")
def network() -> Qwen3:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return Qwen3(WIDE).to("meta").eval()


@EVERY
def test_full_size(network: Qwen3, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The talker after a long recording, and the predictor's stages: frames of two texts, one of them fed."""
    monkeypatch.setattr("torch_ref.qwen3.slots.begin_read", lambda drawn: drawn)
    monkeypatch.setattr("torch_ref.qwen3.slots.finish_read", lambda x: np.zeros(x.shape, np.int32))
    with enforce(backend) as watch:
        slots = Qwen3Slots(network, texts=2, room=900)
        slots.join(0, joining(WIDE, 1, 60, 700))
        for _ in range(2):
            assert slots.read(slots.launch(1)).shape == (1, 2, PUBLISHED.n_codebooks)
        slots.join(1, replace(joining(WIDE, 2, 20, 0), more=True))
        slots.feed(1, [5, 6], more=False)
        for _ in range(3):
            slots.read(slots.launch(1))
    assert watch.calls > 0


@EVERY
def test_full_size_of_the_speaker_encoder(network: Qwen3, backend: Backend) -> None:
    """Ten seconds."""
    with enforce(backend) as watch, torch.inference_mode():
        assert network.speaker_encoder is not None
        found = network.speaker_encoder(torch.zeros(1, 938, 128, device="meta"))
    assert found.shape == (1, PUBLISHED.talker.hidden_size)
    assert watch.calls > 0


@EVERY
@pytest.mark.parametrize("batch", [1, 2])
def test_full_size_of_the_codec(backend: Backend, batch: int) -> None:
    with torch.device("meta"):
        codec = Qwen3Codec(QWEN3_CODEC_12HZ).eval()
    hop = QWEN3_CODEC_12HZ.hop_length
    with enforce(backend) as watch:
        codes = codec.encode(torch.zeros(batch, FRAMES * hop - 5, device="meta"))
        assert codes.shape == (batch, QWEN3_CODEC_12HZ.n_codebooks, FRAMES)
        assert codec.decode(codes).shape == (batch, FRAMES * hop)
        assert codec.decode_piece(codes[..., :1], None)[0].shape == (batch, hop)
    assert watch.calls > 0


@pytest.mark.parametrize("backend", [each for each in pairs() if each.macos in ("14.5", "15.0")], ids=str)
def test_without_our_layers_a_rule_is_broken(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before macOS 15.1 torch convolves at most 65,536 samples."""
    monkeypatch.setattr(conv, "longest_convolution", lambda device: None)
    with torch.device("meta"):
        codec = Qwen3Codec(QWEN3_CODEC_12HZ).eval()
    shape = 1, QWEN3_CODEC_12HZ.n_codebooks, FRAMES
    with observe(backend) as seen:
        codec.decode(torch.zeros(shape, dtype=torch.int32, device="meta"))
    assert "conv-65536" in seen.broken


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2")])
def test_the_same_numbers_under_the_rules(release: str, macos: str) -> None:
    config = qwen3_config(BASE)
    tiny = YARDSTICK.network("qwen3", qwen3_weights(config))
    codec = YARDSTICK.network("qwen3_codec", codec_weights(codec_config()))
    torch.manual_seed(0)
    encoder = SpeakerEncoder(speaker_config())

    def run() -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Codes, and numbers that come of them or go in."""
        slots = Qwen3Slots(tiny, texts=3, room=100)
        for slot in range(3):
            slots.join(slot, joining(config, slot, 9, 7 * slot))
        drawn = [slots.read(slots.launch(1)) for _ in range(4)]
        codes = codec.encode(normal(1, 2, 700))
        exact = [*drawn, codes.numpy()]
        return exact, [codec.decode(codes).numpy(), encoder.embed(normal(2, 9000))]

    plain, sounds = run()
    with enforce(Backend("mps", release, macos)) as watch:
        limited, heard = run()
    assert watch.calls > 0
    for one, other in zip(limited, plain, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(heard, sounds, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * np.abs(other).max())
