"""Full-size EnCodec and Vocos under the rules of MPS: our layers break no rule, torch's own layers some."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import torch_ref.layers.lstm
from benchmarks.limits.workloads import pairs
from tests.golden.codec_bench import bench_of
from tests.tiny.codecs import encodec_config, encodec_weights, vocos_config, vocos_weights
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.codecs.encodec import Encodec
from torch_ref.codecs.vocos import Vocos
from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce, observe
from torch_ref.limits.backend import parse
from tts_core.codecs.encodec import ENCODEC_24KHZ
from tts_core.codecs.vocos import VOCOS_ENCODEC_24KHZ

pytestmark = pytest.mark.rest

FRAMES = 215  # 2.9 s: 68,800 samples in one window, over 65,536
HOP = ENCODEC_24KHZ.hop_length
CODES = torch.zeros(1, 8, FRAMES, dtype=torch.int32, device="meta")
SAMPLES = torch.zeros(1, FRAMES * HOP, device="meta")
FEW = 4  # frames in runs with the LSTM, which goes step by step


@pytest.fixture(scope="module")
def encodec() -> Encodec:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return Encodec(ENCODEC_24KHZ).eval()


@pytest.fixture(scope="module")
def vocos() -> Vocos:
    with torch.device("meta"):
        return Vocos(VOCOS_ENCODEC_24KHZ).to("meta").eval()


def convolutions(codec: Encodec) -> tuple[torch.Tensor, torch.Tensor]:
    """Convolutions before the encoder's LSTM and after the decoder's, over all frames at once."""
    x = SAMPLES[:, None]
    for layer in codec.encoder.layers[: codec.encoder.middle]:
        x = layer(x)
    y = x
    for layer in codec.decoder.layers[codec.decoder.middle + 1 :]:
        y = layer(y)
    return x, y


@pytest.mark.parametrize("backend", stand_ins("with LSTM"), ids=str)
def test_full_size(encodec: Encodec, vocos: Vocos, backend: Backend) -> None:
    with enforce(backend), torch.inference_mode():
        heard, spoken = convolutions(encodec)
        assert heard.shape == (1, ENCODEC_24KHZ.width, FRAMES)
        assert spoken[:, 0].shape == SAMPLES.shape
        assert encodec.encode(SAMPLES[:, : FEW * HOP], 8).shape == (1, 8, FEW)
        assert encodec.decode(CODES[..., :FEW]).shape == (1, FEW * HOP)
        assert vocos.decode(CODES, 1).shape == SAMPLES.shape


@pytest.mark.parametrize("backend", pairs(), ids=str)
def test_without_our_layers_rules_are_broken(encodec: Encodec, backend: Backend, monkeypatch) -> None:
    """Every pair breaks a rule: convolutions over 65,536 before macOS 15.1, torch's LSTM from macOS 15 on."""
    monkeypatch.setattr(conv, "longest_convolution", lambda device: None)
    monkeypatch.setattr(torch_ref.layers.lstm, "lstm_trusted", lambda device, layers: True)
    with observe(backend) as seen, torch.inference_mode():
        convolutions(encodec)
        encodec.encode(SAMPLES[:, : FEW * HOP], 8)
    macos = parse(backend.macos or "0")
    expected = {"conv-65536"} if macos < (15, 1) else set()
    assert set(seen.broken) == expected | ({"lstm-leak"} if macos >= (15, 0) else set())
    assert seen.broken


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.12.1", "15.0"), ("2.15.0", "26.2")])
def test_the_same_numbers_under_the_rules(release: str, macos: str) -> None:
    rng = np.random.default_rng(0)
    encodec = bench_of("torch", "encodec", encodec_weights(encodec_config(), seed=1)).side.codec
    vocos = bench_of("torch", "vocos", vocos_weights(vocos_config(), seed=1)).side.codec
    samples = torch.from_numpy(rng.normal(0, 1, (2, 700)).astype(np.float32))

    def run() -> list[np.ndarray]:
        codes = encodec.encode(samples, 4)
        return [part.numpy() for part in (codes, encodec.decode(codes), vocos.decode(codes, 1))]

    plain = run()
    with enforce(Backend("mps", release, macos)) as watch:
        limited = run()
    assert watch.calls > 0
    np.testing.assert_array_equal(limited[0], plain[0])
    for own, known in zip(limited[1:], plain[1:], strict=True):
        np.testing.assert_allclose(own, known, rtol=0, atol=2e-5 * np.abs(known).max())
