"""Both sides against transformers' EncodecModel: random weights, saved by it, read through our map.

Strides odd and even, widths that do not divide, clips shorter than a kernel. The result of
transformers in float32 replaces a golden vector (tests/tolerance.py). The codebooks are taken from latents of
other clips, as training would do, so that every codebook's choice matters.
"""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, encodec_bench
from tests.golden.encodec_checks import embedding
from tests.oracles.clips import assert_codebooks_are_used, clip, telling_clip
from tests.sides import BOTH
from tests.tiny.codecs import codebooks_at
from tts_core.codecs.policy import CodecPolicy

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("mlx.core")

CONFIGS = {
    "8-5-4-2": {"num_filters": 5, "hidden_size": 12, "codebook_size": 64, "num_lstm_layers": 2},
    "3-2-5": {
        "upsampling_ratios": [3, 2, 5],
        "num_filters": 7,
        "hidden_size": 9,
        "compress": 3,
        "kernel_size": 5,
        "last_kernel_size": 3,
        "residual_kernel_size": 5,
        "num_lstm_layers": 1,
        "codebook_size": 32,
        "target_bandwidths": [4.0, 13.5],
        "sampling_rate": 16000,
    },
    "7-3": {
        "upsampling_ratios": [7, 3],
        "num_filters": 4,
        "hidden_size": 8,
        "kernel_size": 3,
        "last_kernel_size": 9,
        "num_lstm_layers": 3,
        "codebook_size": 64,
        "target_bandwidths": [5.0, 12.0],
        "sampling_rate": 8000,
    },
}
LENGTHS = (1, 2, 50, 320, 701, 1009, 2503)


class Oracle:
    """transformers' codec, and the folder in which it is saved."""

    def __init__(self, name: str, folder: Path):
        from tests.oracles.weights import randomise

        sizes = {"target_bandwidths": [1.5, 3.0], **CONFIGS[name]}
        if "codebook_dim" not in sizes:
            sizes["codebook_dim"] = sizes["hidden_size"]
        config = transformers.EncodecConfig(**sizes)
        self.network, self.folder = transformers.EncodecModel(config).eval(), folder
        randomise(self.network, seed=5)
        self._fill_codebooks()
        self.network.save_pretrained(folder)

    @torch.inference_mode()
    def _fill_codebooks(self) -> None:
        """Take the entries from the residuals of some latents after the codebooks before."""
        rest = self.network.encoder(torch.from_numpy(clip(99, 2, 300 * self.hop))[:, None])
        rest = rest.transpose(1, 2).flatten(0, 1)
        generator = torch.Generator().manual_seed(6)
        for layer in self.network.quantizer.layers:
            book = layer.codebook.embed
            some = torch.randperm(len(rest), generator=generator)[: len(book)]
            book.copy_(rest[some] * 0.9)
            rest = rest - book[torch.cdist(rest, book).argmin(-1)]

    @property
    def hop(self) -> int:
        return int(np.prod(self.network.config.upsampling_ratios))

    @torch.inference_mode()
    def encode(self, samples: np.ndarray, kbps: float) -> np.ndarray:
        encoded = self.network.encode(torch.from_numpy(samples)[:, None], bandwidth=kbps)
        return encoded.audio_codes[0].numpy()

    @torch.inference_mode()
    def decode(self, codes: np.ndarray) -> np.ndarray:
        wide = torch.from_numpy(codes).long()[None]
        return self.network.decode(wide, [None]).audio_values[:, 0].numpy()


@pytest.fixture(scope="module", params=CONFIGS)
def oracle(request, tmp_path_factory) -> Oracle:
    return Oracle(request.param, tmp_path_factory.mktemp("encodec"))


@pytest.fixture(params=BOTH)
def bench(request, oracle) -> Bench[CodecSide]:
    return encodec_bench(request.param, oracle.folder / "model.safetensors", oracle.folder / "config.json")


_CLIPS: dict[tuple, np.ndarray] = {}


def telling(oracle: Oracle, bench: Bench[CodecSide], length: int) -> np.ndarray:
    """A clip, found once for both sides."""
    key = oracle.folder, length, bench.torch64.codec.policy
    kbps = oracle.network.config.target_bandwidths[-1]
    if key not in _CLIPS:
        _CLIPS[key] = telling_clip(length, lambda one: lead(bench, one, oracle.encode(one, kbps)))
    return _CLIPS[key]


def lead(bench: Bench[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
    """Factor by which the rounding of float32 latents can grow before any code changes.

    Moving a latent by m changes the difference of its distances to two entries by at most 2 m times the
    entries' own distance.
    """
    latents = embedding(bench.torch64, samples)
    moved = np.linalg.norm(latents - embedding(bench.torch32, samples), axis=1).max()
    rest, least = latents.swapaxes(1, 2), np.inf
    for q in range(codes.shape[1]):
        entries = bench.torch64.codec.quantizer.layers[q].codebook.embed.detach().numpy()
        distance = np.square(rest[:, :, None] - entries).sum(-1)
        first, second = np.argsort(distance, axis=-1)[..., :2].transpose(2, 0, 1)
        gap = np.diff(np.sort(distance, axis=-1)[..., :2], axis=-1)[..., 0]
        apart = np.linalg.norm(entries[first] - entries[second], axis=-1)
        least = min(least, (gap / (2 * apart * moved)).min())
        rest = rest - entries[codes[:, q]]
    return least


@pytest.mark.parametrize("length", LENGTHS)
def test_encode(oracle, bench, length):
    samples, config = telling(oracle, bench, length), bench.side.codec.config
    with torch.inference_mode():
        latents = oracle.network.encoder(torch.from_numpy(samples)[:, None]).numpy()
    bench.compare(f"latents of {length}", latents, lambda side: embedding(side, samples))
    for kbps in oracle.network.config.target_bandwidths:
        codes = oracle.encode(samples, kbps)
        assert codes.shape == (2, codebooks_at(config, kbps), -(-length // config.hop_length))
        own = bench.side.numpy(bench.side.codec.encode(samples, codes.shape[1]))
        assert own.dtype == np.int32
        np.testing.assert_array_equal(own, codes, f"{length} samples at {kbps} kbps")


def test_codes_use_the_codebooks(oracle):
    codes = oracle.encode(clip(3, 2, 200 * oracle.hop), oracle.network.config.target_bandwidths[-1])
    assert_codebooks_are_used(codes, oracle.network.config.codebook_size)


@pytest.mark.parametrize("frames", [1, 2, 7, 23])
def test_decode(oracle, bench, frames):
    config, rng = bench.side.codec.config, np.random.default_rng(frames)
    for books in (config.n_codebooks, 1):
        codes = rng.integers(0, config.codebook_size, (2, books, frames)).astype(np.int32)
        golden = oracle.decode(codes)
        assert golden.shape == (2, frames * config.hop_length)
        bench.compare(
            f"{books} codebooks, {frames} frames", golden, lambda side, codes=codes: side.decode(codes)
        )


@pytest.mark.parametrize("length", [701, 2503])
def test_small_windows(oracle, bench, length, monkeypatch):
    """Cuts at every 9 frames, so that short clips cross many."""
    for side in (bench.side, bench.torch32, bench.torch64):
        monkeypatch.setattr(side.codec, "policy", CodecPolicy(9))
    test_encode(oracle, bench, length)
    test_decode(oracle, bench, 23)


def test_the_old_names_of_weight_norm(oracle, tmp_path):
    """The names in facebook/encodec_24khz; newer versions of transformers save the parametrization's."""
    renamed = {
        name.replace("parametrizations.weight.original0", "weight_g").replace(
            "parametrizations.weight.original1", "weight_v"
        ): tensor
        for name, tensor in load_file(oracle.folder / "model.safetensors").items()
    }
    save_file(renamed, tmp_path / "model.safetensors")
    assert any(name.endswith("weight_g") for name in renamed)
    old = encodec_bench("torch", tmp_path / "model.safetensors", oracle.folder / "config.json").side
    new = encodec_bench("torch", oracle.folder / "model.safetensors", oracle.folder / "config.json").side
    for ours, theirs in zip(old.codec.parameters(), new.codec.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_sizes_are_read_from_the_saved_configuration(oracle, bench):
    config, own = oracle.network.config, bench.side.codec
    assert own.sample_rate == config.sampling_rate
    assert own.hop_length == config.hop_length == oracle.hop
    assert own.n_codebooks == config.num_quantizers
