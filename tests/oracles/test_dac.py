"""Both sides against transformers' DacModel: random weights, saved by it, converted by us; odd strides too.

The result of transformers in float32 replaces a golden vector (tests/tolerance.py).
"""

from pathlib import Path

import numpy as np
import pytest

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide
from tests.golden.dac_checks import check_codes, search
from tests.golden.dia_bench import Loader
from tests.sides import BOTH
from tts_core.codecs.dac import decoded_length
from tts_core.codecs.policy import CodecPolicy

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("mlx.core")

CONFIGS = {
    "odd strides": {
        "downsampling_ratios": [3, 2, 5],
        "n_codebooks": 4,
        "codebook_size": 128,
        "codebook_dim": 6,
    },
    "even strides": {
        "downsampling_ratios": [2, 4, 4],
        "n_codebooks": 3,
        "codebook_size": 64,
        "codebook_dim": 8,
    },
}
FRAMES = 26


class Oracle:
    """transformers' codec, and the folder in which it is saved."""

    def __init__(self, name: str, folder: Path):
        from tests.oracles.weights import randomise

        config = transformers.DacConfig(
            encoder_hidden_size=16, decoder_hidden_size=128, sampling_rate=16000, **CONFIGS[name]
        )
        self.network, self.folder = transformers.DacModel(config).eval(), folder
        randomise(self.network, seed=7)
        self.network.save_pretrained(folder)


@pytest.fixture(scope="module", params=CONFIGS)
def oracle(request, tmp_path_factory) -> Oracle:
    return Oracle(request.param, tmp_path_factory.mktemp("dac"))


@pytest.fixture(params=BOTH)
def bench(request, oracle, loader: Loader) -> Bench[CodecSide]:
    return loader.codec_bench(request.param, oracle.folder)


@torch.inference_mode()
def test_encode(oracle, bench):
    """Encoder output within the bound; codes exact except near-ties. The second item is quiet."""
    hop = bench.side.codec.hop_length
    samples = np.random.default_rng(1).normal(0, 0.3, (2, FRAMES * hop)).astype(np.float32)
    samples[1] *= 0.01
    audio = torch.from_numpy(samples)[:, None]
    latents = oracle.network.encoder(audio).numpy()

    def encoder(side: CodecSide) -> np.ndarray:
        return side.conv(side.codec.encoder, samples[:, None])

    bench.compare("encoder", latents, encoder)
    codes = oracle.network.encode(audio).audio_codes.numpy()
    margin = search(bench.torch64, encoder(bench.torch64), codes)[1]
    own = bench.side.encode(samples)
    assert own.dtype == np.int32
    check_codes("codes", own, codes, margin)
    bench.compare(
        "z", oracle.network.encode(audio).quantized_representation.numpy(), lambda s: s.latents(codes)
    )


@torch.inference_mode()
def test_encode_pads_to_whole_frames(oracle, bench):
    hop = bench.side.codec.hop_length
    samples = np.random.default_rng(2).normal(0, 0.3, (1, 9 * hop + 1)).astype(np.float32)
    padded = np.pad(samples, ((0, 0), (0, hop - 1)))
    np.testing.assert_array_equal(bench.side.encode(samples), bench.side.encode(padded))
    assert bench.side.encode(samples).shape[2] == 10


@torch.inference_mode()
def test_decode(oracle, bench):
    config, rng = bench.side.codec.config, np.random.default_rng(3)
    codes = rng.integers(0, config.codebook_size, (2, config.n_codebooks, FRAMES)).astype(np.int32)
    z, _, _ = oracle.network.quantizer.from_codes(torch.from_numpy(codes).long())
    bench.compare("z", z.numpy(), lambda side: side.latents(codes))
    audio = (
        oracle.network.decode(audio_codes=torch.from_numpy(codes).long()).audio_values.reshape(2, -1).numpy()
    )
    assert audio.shape[1] == decoded_length(config, FRAMES)
    bench.compare("waveform", audio, lambda side: side.decode(codes))


SMALL = CodecPolicy(5, first_frames=3)  # cuts at 3, 8, 13, ... frames, so that short inputs cross many


def test_small_windows(oracle, bench, monkeypatch):
    for side in (bench.side, bench.torch32, bench.torch64):
        monkeypatch.setattr(side.codec, "policy", SMALL)
    test_encode(oracle, bench)
    test_decode(oracle, bench)


def test_windows_are_exact(oracle, loader, monkeypatch):
    """In float64 one missing frame of context has a million times the error of rounding."""
    side, rng = loader.codec_bench("torch", oracle.folder).torch64, np.random.default_rng(4)
    monkeypatch.setattr(side.codec, "policy", SMALL)
    config = side.codec.config
    codes = rng.integers(0, config.codebook_size, (1, config.n_codebooks, 40)).astype(np.int32)
    whole = side.conv(side.codec.decoder, side.latents(codes))[:, 0]
    np.testing.assert_allclose(side.decode(codes), whole, rtol=0, atol=1e-12)


def test_sizes_are_read_from_the_saved_configuration(oracle, bench):
    config, own = oracle.network.config, bench.side.codec.config
    assert own.sample_rate == 16000
    assert list(own.downsampling_ratios) == config.downsampling_ratios
    assert own.hop_length == config.hop_length
    assert own.hidden_size == config.hidden_size == 128
