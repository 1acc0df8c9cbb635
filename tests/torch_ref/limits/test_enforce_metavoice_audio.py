"""Multi-band diffusion and speaker encoder under the rules of MPS: none is broken, results stay the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.tiny.mbd import CONFIG, SCHEDULE, mbd_tensors
from tests.torch_ref.limits.stand_ins import stand_ins
from torch_ref.codecs.band_split import match_levels, split_bands
from torch_ref.codecs.mbd import DiffusionUnet, MultiBandDiffusion
from torch_ref.layers import conv
from torch_ref.limits import Backend, enforce, observe
from torch_ref.metavoice.speaker_encoder import SpeakerEncoder
from tts_core.codecs.mbd import PUBLISHED_UNET
from tts_core.metavoice.config import SpeakerEncoderConfig, speaker_encoder_parameter_shapes
from tts_core.nn.noise import HostNoise

pytestmark = pytest.mark.rest

LENGTH = 96_000  # 4 s: above 65,536, the limit of a convolution on some of them
SPEAKER = SpeakerEncoderConfig(n_mels=11, hidden_size=10, num_hidden_layers=3, speaker_embedding_size=7)


@pytest.fixture(scope="module")
def full_size() -> DiffusionUnet:
    """A network of shapes only: no weight is allocated."""
    with torch.device("meta"):
        return DiffusionUnet(PUBLISHED_UNET, 1000).eval()


def run_full_size(unet: DiffusionUnet) -> torch.Tensor:
    """One call of the network, then the band split and the matching of its result."""
    x = torch.zeros(1, 1, LENGTH, device="meta")
    with torch.inference_mode():
        wave = unet(x, 999, torch.zeros(1, 128, LENGTH // 320, device="meta"))[:, 0]
        assert split_bands(wave, 8, 24_000).shape == (1, 8, LENGTH)
        return match_levels(wave[0], wave[0], 24_000)


@pytest.mark.parametrize("backend", stand_ins("without LSTM"), ids=str)
def test_four_seconds_of_the_full_size(full_size: DiffusionUnet, backend: Backend) -> None:
    with enforce(backend):
        assert run_full_size(full_size).shape == (LENGTH,)


@pytest.mark.parametrize(
    ("release", "macos", "limited"),
    [("2.11.0", "14.5", True), ("2.15.0", "15.0", True), ("2.11.0", "15.2", False)],
)
def test_without_windows_the_convolutions_break_there(
    full_size: DiffusionUnet, release: str, macos: str, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv, "longest_convolution", lambda device: None)
    with observe(Backend("mps", release, macos)) as seen:
        run_full_size(full_size)
    assert set(seen.broken) == ({"conv-65536"} if limited else set())


def decode() -> np.ndarray:
    """Tiny weights, both bands, with and without processor, two transitions."""

    def weights(band: int) -> dict[str, torch.Tensor]:
        head = f"bands.{band}."
        named = mbd_tensors().items()
        return {k.removeprefix(head): torch.from_numpy(v) for k, v in named if k.startswith(head)}

    rng = np.random.default_rng(0)
    latents = rng.normal(0, 1, (CONFIG.codec_dim, 3)).astype(np.float32)
    wave = rng.normal(0, 0.2, 130).astype(np.float32)
    steps = [SCHEDULE.num_steps - 1, 60, 0]
    (found,) = MultiBandDiffusion(CONFIG, weights).decode([latents], [wave], [HostNoise(0)], steps=steps)
    return found.numpy()


@pytest.fixture(scope="module")
def encoder() -> SpeakerEncoder:
    random = np.random.default_rng(3)
    shapes = speaker_encoder_parameter_shapes(SPEAKER)
    tensors = {
        name: torch.from_numpy(random.normal(0, 0.4, shape).astype(np.float32))
        for name, shape in shapes.items()
    }
    network = SpeakerEncoder(SPEAKER)
    network.load_state_dict(tensors, strict=True, assign=True)
    return network.eval()


@pytest.fixture(scope="module")
def plain(encoder: SpeakerEncoder) -> tuple[np.ndarray, np.ndarray]:
    return decode(), encoder.embed([SAMPLES])


SAMPLES = np.random.default_rng(1).normal(0, 0.1, 34_000).astype(np.float32)  # two slices


@pytest.mark.parametrize("backend", stand_ins("with LSTM"), ids=str)
def test_no_rule_is_broken(
    encoder: SpeakerEncoder, plain: tuple[np.ndarray, np.ndarray], backend: Backend
) -> None:
    mels = torch.ones(2, 5, SPEAKER.n_mels, device=torch.device("cpu"))  # there the LSTM goes step by step
    with enforce(backend) as watch, torch.inference_mode():
        limited = decode()
        assert encoder(mels).shape == (2, SPEAKER.speaker_embedding_size)
    assert watch.calls > 50
    np.testing.assert_allclose(limited, plain[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(("release", "macos"), [("2.11.0", "14.5"), ("2.15.0", "27.0")])
def test_a_speaker_stays_the_same(
    encoder: SpeakerEncoder, plain: tuple[np.ndarray, np.ndarray], release: str, macos: str
) -> None:
    with enforce(Backend("mps", release, macos)):
        found = encoder.embed([SAMPLES])
    np.testing.assert_allclose(found, plain[1], rtol=0, atol=1e-5)
