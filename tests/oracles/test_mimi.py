"""Both sides against transformers' MimiModel: random weights, saved by it, read through our map.

Random configurations: strides odd and even, grouped heads, windows shorter than the clips, several blocks a
rate, codebooks as wide as the latents or not. The result of transformers in float32 replaces a golden vector
(tests/tolerance.py). The codebooks are taken from latents of other clips, as training would do, so that every
codebook's choice matters.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, mimi_bench
from tests.golden.mimi_checks import attended, convolved, in_pieces, latents, margins
from tests.oracles.clips import assert_codebooks_are_used, clip, telling_clip
from tests.sides import BOTH
from tts_core.codecs.policy import CodecPolicy

pytestmark = pytest.mark.rest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("mlx.core")

SEEDS = range(6)
LENGTHS = (1, 2, 333, 1009)


def sizes(seed: int) -> dict:
    """A random configuration that transformers accepts; the rate gives two steps a frame."""
    rng = np.random.default_rng(seed)
    ratios = [int(n) for n in rng.integers(2, 6, rng.integers(1, 4))]
    heads = int(rng.integers(1, 4))
    width = 2 * heads * int(rng.integers(2, 4))
    dim = width if seed % 3 == 0 else int(rng.integers(4, 10))
    return {
        "sampling_rate": 25 * int(np.prod(ratios)),
        "frame_rate": 12.5,
        "hidden_size": width,
        "num_filters": int(rng.integers(4, 8)),
        "num_residual_layers": int(rng.integers(1, 4)),
        "dilation_growth_rate": int(rng.integers(1, 4)),
        "upsampling_ratios": ratios,
        "kernel_size": int(rng.integers(1, 9)),
        "last_kernel_size": int(rng.integers(1, 6)),
        "residual_kernel_size": int(rng.integers(1, 6)),
        "compress": int(rng.integers(1, 4)),
        "num_hidden_layers": int(rng.integers(1, 4)),
        "intermediate_size": int(rng.integers(5, 30)),
        "num_attention_heads": 2 * heads,
        "num_key_value_heads": heads,
        "head_dim": 2 * int(rng.integers(1, 6)),
        "sliding_window": int(rng.integers(2, 12)),
        "num_quantizers": int(rng.integers(3, 6)),
        "num_semantic_quantizers": int(rng.integers(1, 3)),
        "codebook_size": 32,
        "codebook_dim": dim,
        "vector_quantization_hidden_dimension": dim,
        "upsample_groups": width,
    }


class Oracle:
    """transformers' codec, and the folder in which it is saved."""

    def __init__(self, seed: int, folder: Path):
        from tests.oracles.weights import randomise

        config = transformers.MimiConfig(**sizes(seed))
        self.network, self.folder = transformers.MimiModel(config).eval(), folder
        randomise(self.network, seed=5)
        self._fill_codebooks()
        self.network.save_pretrained(folder)

    @torch.inference_mode()
    def _fill_codebooks(self) -> None:
        """Take the entries from what other clips' latents leave after the codebooks before."""
        hop = self.network.config.sampling_rate * 2 // 25
        found = self.latents(clip(99, 2, 200 * hop))
        generator, quantizer = torch.Generator().manual_seed(6), self.network.quantizer
        for half in (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        ):
            rest = half.input_proj(found) if half.input_proj is not None else found
            rest = rest.transpose(1, 2).flatten(0, 1)
            for layer in half.layers:
                book = layer.codebook
                some = torch.randperm(len(rest), generator=generator)[: book.codebook_size]
                usage = torch.rand(book.codebook_size, generator=generator) * 3 + 0.1
                book.cluster_usage.copy_(usage)
                book.embed_sum.copy_(0.9 * rest[some] * usage[:, None])
                book._embed = None
                rest = rest - book.embed[torch.cdist(rest, book.embed).argmin(-1)]

    @torch.inference_mode()
    def convolved(self, samples: np.ndarray):
        return self.network.encoder.encoder_seanet(torch.from_numpy(samples)[:, None])

    @torch.inference_mode()
    def attended(self, samples: np.ndarray):
        steps = self.convolved(samples).transpose(1, 2)
        return self.network.encoder_transformer(steps)[0].transpose(1, 2)

    @torch.inference_mode()
    def latents(self, samples: np.ndarray):
        return self.network.downsample(self.attended(samples))

    @torch.inference_mode()
    def encode(self, samples: np.ndarray, books: int) -> np.ndarray:
        return self.network.encode(torch.from_numpy(samples)[:, None], num_quantizers=books)[0].numpy()

    @torch.inference_mode()
    def decode(self, codes: np.ndarray) -> np.ndarray:
        return self.network.decode(torch.from_numpy(codes).long())[0][:, 0].numpy()


@pytest.fixture(scope="module", params=SEEDS)
def oracle(request, tmp_path_factory) -> Oracle:
    return Oracle(request.param, tmp_path_factory.mktemp("mimi"))


@pytest.fixture(params=BOTH)
def bench(request, oracle) -> Bench[CodecSide]:
    folder = oracle.folder
    return mimi_bench(
        request.param, folder / "model.safetensors", folder / "config.json", "mimi_transformers"
    )


def lead(bench: Bench[CodecSide], samples: np.ndarray, codes: np.ndarray) -> float:
    """Factor by which the rounding of float32 latents can grow before any code changes.

    A latent moved by m changes the difference of its distances to two entries by at most 2 m, times the norm
    of the projection into the codebooks.
    """
    truth = latents(bench.torch64, samples)
    moved = np.linalg.norm(truth - latents(bench.torch32, samples), axis=1).max()
    quantizer, gain = bench.torch64.codec.quantizer, 1.0
    for half in (quantizer.semantic_residual_vector_quantizer, quantizer.acoustic_residual_vector_quantizer):
        for weight in half.input_proj.parameters():
            gain = max(gain, float(torch.linalg.matrix_norm(weight[..., 0].detach(), 2)))
    gaps, _ = margins(bench.torch64, truth, codes)
    return float(gaps.min() / (2 * gain * moved))


@pytest.mark.parametrize("length", LENGTHS)
def test_encode(oracle, bench, length):
    config = bench.side.codec.config
    samples = telling_clip(length, lambda one: lead(bench, one, oracle.encode(one, config.n_codebooks)))
    for name, run in {"convolved": convolved, "attended": attended, "latents": latents}.items():
        golden = getattr(oracle, name)(samples).numpy()
        bench.compare(f"{name}, {length} samples", golden, lambda side, run=run: run(side, samples))
    for books in (config.n_semantic, config.n_codebooks):
        codes = oracle.encode(samples, books)
        assert codes.shape == (2, books, -(-length // config.hop_length))
        own = bench.side.numpy(bench.side.codec.encode(samples, books))
        np.testing.assert_array_equal(own, codes, f"{length} samples, {books} codebooks")


def test_codes_use_the_codebooks(oracle):
    hop, books = oracle.network.config.sampling_rate * 2 // 25, oracle.network.config.num_quantizers
    codes = oracle.encode(clip(3, 2, 150 * hop), books)
    assert_codebooks_are_used(codes, oracle.network.config.codebook_size)


@pytest.mark.parametrize("frames", [1, 2, 7, 23])
def test_decode(oracle, bench, frames):
    config, rng = bench.side.codec.config, np.random.default_rng(frames)
    for books in (config.n_codebooks, config.n_semantic):
        codes = rng.integers(0, config.codebook_size, (2, books, frames)).astype(np.int32)
        golden = oracle.decode(codes)
        assert golden.shape == (2, frames * config.hop_length)
        bench.compare(
            f"{books} codebooks, {frames} frames", golden, lambda side, codes=codes: side.decode(codes)
        )


@pytest.mark.parametrize("split", [[1, 2, 4, 16], [1] * 23], ids=str)
def test_pieces(oracle, bench, split):
    """transformers keeps no state of convolutions when decoding; the whole decode is the reference."""
    config, rng = bench.side.codec.config, np.random.default_rng(1)
    codes = rng.integers(0, config.codebook_size, (1, config.n_codebooks, 23)).astype(np.int32)
    bench.compare(f"pieces {split}", oracle.decode(codes), lambda side: in_pieces(side, codes, split))


def test_small_windows(oracle, bench, monkeypatch):
    """Cuts at every 9 frames, so that short clips cross many."""
    for side in (bench.side, bench.torch32, bench.torch64):
        monkeypatch.setattr(side.codec, "policy", CodecPolicy(9))
    test_encode(oracle, bench, 1009)
    test_decode(oracle, bench, 23)


def test_sizes_are_read_from_the_saved_configuration(oracle, bench):
    config, own = oracle.network.config, bench.side.codec
    assert own.sample_rate == config.sampling_rate
    assert own.n_codebooks == config.num_quantizers
    assert own.config.frame_rate == config.frame_rate
