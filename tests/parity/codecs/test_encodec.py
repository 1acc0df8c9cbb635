"""EnCodec layer by layer, MLX against PyTorch: odd strides and lengths, in the derived bound; codes exactly.

Windows are compared with the whole run, in float64 to rounding.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mlx_port.codecs.encodec
import torch_ref.codecs.encodec
from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, bench_of
from tests.golden.encodec_checks import after, embedding
from tests.tiny.codecs import encodec_config, encodec_weights
from tests.tiny.inputs import normal
from tests.tolerance import assert_within
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError

TINY = encodec_config()
FOUR = replace(TINY, upsampling_ratios=(8, 5, 4, 2), num_filters=3, last_kernel_size=7, num_lstm_layers=1)
ONE = replace(
    TINY, upsampling_ratios=(2,), kernel_size=2, last_kernel_size=1, residual_kernel_size=1, compress=1
)
CONFIGS = pytest.mark.parametrize("config", [TINY, FOUR, ONE], ids=["5-2-3", "8-5-4-2", "2"])


@cache
def bench(config: EncodecConfig = TINY) -> Bench[CodecSide]:
    return bench_of("mlx", "encodec", encodec_weights(config, seed=1))


def parity(what: str, run: Callable[[CodecSide], np.ndarray], config: EncodecConfig = TINY) -> None:
    bench(config).parity(what, run)


def random_codes(config: EncodecConfig, batch: int, frames: int) -> np.ndarray:
    shape = (batch, config.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, config.codebook_size, shape).astype(np.int32)


@pytest.mark.parametrize("length", [1, 2, 3, 6, 7, 8, 20])
@pytest.mark.parametrize(("left", "right"), [(0, 0), (6, 0), (0, 3), (6, 1), (2, 5)])
def test_mirrored(length: int, left: int, right: int) -> None:
    """NumPy's reflection of a clip that zeros extend to the needed length, with the zeros cut off again."""
    x = normal(length, 2, 3, length)
    zeros = max(0, max(left, right) + 1 - length) if left or right else 0
    padded = np.pad(np.pad(x, ((0, 0), (0, 0), (0, zeros))), ((0, 0), (0, 0), (left, right)), "reflect")
    expected = padded[:, :, : left + length + right]
    own = torch_ref.codecs.encodec.mirrored(torch.from_numpy(x), left, right).numpy()
    port = mlx_port.codecs.encodec.mirrored(mx.array(x.swapaxes(1, 2)), left, right)
    np.testing.assert_array_equal(own, expected)
    np.testing.assert_array_equal(np.array(port).swapaxes(1, 2), expected)


@CONFIGS
@pytest.mark.parametrize("samples", [1, 7, 61])
def test_every_layer_of_the_encoder(config: EncodecConfig, samples: int) -> None:
    x = normal(2, 2, 1, samples)
    for index in range(len(bench(config).side.codec.encoder.layers)):
        parity(f"encoder layer {index}", lambda side, i=index: after(side, "encoder", i, x), config)


@CONFIGS
@pytest.mark.parametrize("frames", [1, 2, 7])
def test_every_layer_of_the_decoder(config: EncodecConfig, frames: int) -> None:
    x = normal(3, 2, config.hidden_size, frames)
    for index in range(len(bench(config).side.codec.decoder.layers)):
        parity(f"decoder layer {index}", lambda side, i=index: after(side, "decoder", i, x), config)


def test_quantizer_decode() -> None:
    codes = random_codes(TINY, 2, 19)
    for books in range(1, TINY.n_codebooks + 1):
        parity(f"{books} codebooks", lambda side, books=books: side.latents(codes[:, :books]))


def test_first_of_equal_entries_wins() -> None:
    weights = encodec_weights(TINY)
    weights.tensors["quantizer.layers.0.codebook.embed"][:] = 1.0
    trio = bench_of("mlx", "encodec", weights)
    for side in (trio.side, trio.torch32):
        assert (side.numpy(side.codec.encode(normal(8, 1, 90), 2))[:, 0] == 0).all()


@CONFIGS
@pytest.mark.parametrize("length", [1, 31, 500])
def test_encode(config: EncodecConfig, length: int) -> None:
    """Equal int32 codes on all sides: a frame per started hop, and the requested number of codebooks."""
    samples, trio = normal(9, 2, length), bench(config)
    frames = -(-length // config.hop_length)
    for books in (1, config.n_codebooks):
        sides = (trio.side, trio.torch32, trio.torch64)
        codes = [side.numpy(side.codec.encode(samples, books)) for side in sides]
        assert codes[0].shape == (2, books, frames)
        assert {part.dtype for part in codes} == {np.dtype(np.int32)}
        for own in codes[:2]:
            np.testing.assert_array_equal(own, codes[2])


@CONFIGS
@pytest.mark.parametrize("frames", [1, 8, 26])
def test_decode(config: EncodecConfig, frames: int) -> None:
    codes = random_codes(config, 2, frames)
    assert bench(config).side.decode(codes).shape == (2, frames * config.hop_length)
    parity(f"decode of {frames} frames", lambda side: side.decode(codes), config)


def test_nothing_gives_nothing() -> None:
    for side in (bench().side, bench().torch32):
        assert side.numpy(side.codec.encode(np.zeros((2, 0), np.float32), 3)).shape == (2, 3, 0)
        assert side.decode(np.zeros((2, 3, 0), np.int32)).shape == (2, 0)


def test_codebooks_that_are_not_there_are_refused() -> None:
    for side in (bench().side, bench().torch32):
        for books in (0, TINY.n_codebooks + 1):
            with pytest.raises(UsageError, match="give 1 to 4"):
                side.codec.encode(np.zeros((1, 9), np.float32), books)
            with pytest.raises(UsageError, match="give 1 to 4"):
                side.decode(np.zeros((1, books, 5), np.int32))


def edges(config: EncodecConfig, largest: int) -> list[int]:
    """Lengths in samples around the edges of the first, second and third window."""
    window = max(largest, config.kernel_size, config.last_kernel_size) * config.hop_length
    return [count * window + more for count in (1, 2) for more in (-1, 0, 1)]


def latents_heard(codec: torch_ref.codecs.encodec.Encodec, samples: np.ndarray) -> list[torch.Tensor]:
    """Input of the quantizer in `encode`, window by window."""
    seen, quantize = [], codec.quantizer.encode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            codec.quantizer, "encode", lambda latents, n: seen.append(latents) or quantize(latents, n)
        )
        codec.encode(samples.astype(np.float64), 1)
    return seen


@CONFIGS
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_encode(config: EncodecConfig, largest: int, monkeypatch) -> None:
    """Codes on both sides, and latents in float64: codes would not show a context that is slightly short."""
    trio, books = bench(config), config.n_codebooks
    for length in edges(config, largest):
        samples = normal(length, 2, length)
        for side in (trio.side, trio.torch32):
            whole = side.numpy(side.codec.encode(samples, books))
            with monkeypatch.context() as patch:
                patch.setattr(side.codec, "policy", CodecPolicy(largest))
                np.testing.assert_array_equal(side.numpy(side.codec.encode(samples, books)), whole)
        with monkeypatch.context() as patch:
            patch.setattr(trio.torch64.codec, "policy", CodecPolicy(largest))
            seen = latents_heard(trio.torch64.codec, samples)
        latents = torch.cat(seen, dim=2).numpy()
        np.testing.assert_allclose(latents, embedding(trio.torch64, samples), rtol=0, atol=1e-12)


@CONFIGS
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_decode(config: EncodecConfig, largest: int, monkeypatch) -> None:
    window, trio = max(largest, config.kernel_size, config.last_kernel_size), bench(config)
    for frames in (window - 1, window, window + 1, 2 * window, 2 * window + 3):
        codes = random_codes(config, 2, frames)
        truth, known = trio.torch64.decode(codes), trio.torch32.decode(codes)
        with monkeypatch.context() as patch:
            for side in (trio.side, trio.torch32, trio.torch64):
                patch.setattr(side.codec, "policy", CodecPolicy(largest))
            np.testing.assert_allclose(trio.torch64.decode(codes), truth, rtol=0, atol=1e-12)
            for side in (trio.side, trio.torch32):
                assert_within(side.decode(codes), known, truth, f"{frames} frames in windows")


SHAPES = st.builds(
    EncodecConfig,
    sample_rate=st.just(1000),
    hidden_size=st.just(4),
    num_filters=st.just(3),
    upsampling_ratios=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    kernel_size=st.integers(1, 9),
    last_kernel_size=st.integers(1, 9),
    residual_kernel_size=st.integers(1, 5),
    compress=st.integers(1, 3),
    num_lstm_layers=st.integers(1, 2),
    n_codebooks=st.just(2),
    codebook_size=st.just(8),
)


@settings(max_examples=15)
@given(config=SHAPES, largest=st.integers(1, 12), hops=st.integers(1, 40), more=st.integers(0, 100))
def test_windows_of_any_shape_are_exact(config: EncodecConfig, largest: int, hops: int, more: int) -> None:
    """In float64 one missing sample of context has a million times the error of rounding."""
    codec = bench_of("torch", "encodec", encodec_weights(config, seed=2)).torch64.codec
    samples = normal(hops, 1, (hops - 1) * config.hop_length + 1 + more % config.hop_length)
    codes = torch.from_numpy(random_codes(config, 1, hops))
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(codec, "policy", CodecPolicy(largest))
        heard = latents_heard(codec, samples)
        said = codec.decode(codes)
        whole = codec.encoder(torch.from_numpy(samples)[:, None].double())
        spoken = codec.decoder(codec.quantizer.decode(codes))[:, 0]
    torch.testing.assert_close(torch.cat(heard, dim=2), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(said, spoken, rtol=0, atol=1e-12)
    kernels = (2, config.kernel_size, config.last_kernel_size, config.residual_kernel_size)
    assert (len(heard) > 1) == (hops > max(largest, *kernels))
