"""Mimi layer by layer, MLX against PyTorch: odd strides and lengths, in the derived bound; codes exactly.

Windows and pieces are compared with the whole run, in float64 to rounding.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, bench_of
from tests.golden.mimi_checks import in_pieces
from tests.tiny.inputs import normal
from tests.tiny.mimi import mimi_config, mimi_weights
from tests.tolerance import assert_within
from torch_ref.codecs.mimi import Mimi
from tts_core.codecs.mimi import POLICY, MimiConfig, decode_tail
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError

TINY = mimi_config()
FOUR = replace(TINY, upsampling_ratios=(8, 6, 5, 4), num_filters=3, num_residual_layers=1, sample_rate=24000)
ONE = replace(
    TINY,
    upsampling_ratios=(2,),
    kernel_size=2,
    last_kernel_size=1,
    residual_kernel_size=1,
    compress=1,
    sliding_window=1,
    codebook_dim=14,
    n_semantic=2,
)
CONFIGS = pytest.mark.parametrize("config", [TINY, FOUR, ONE], ids=["5-2-3", "8-6-5-4", "2"])


@cache
def bench(config: MimiConfig = TINY) -> Bench[CodecSide]:
    return bench_of("mlx", "mimi", mimi_weights(config, seed=1))


def parity(what: str, run: Callable[[CodecSide], np.ndarray], config: MimiConfig = TINY) -> None:
    bench(config).parity(what, run)


def random_codes(config: MimiConfig, batch: int, frames: int) -> np.ndarray:
    shape = (batch, config.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, config.codebook_size, shape).astype(np.int32)


def first_layers(side: CodecSide, half: str, count: int, x: np.ndarray) -> np.ndarray:
    """Output of the first layers of encoder or decoder. (B, C, T) → (B, C, T)."""

    def run(x):
        for layer in getattr(side.codec, half).layers[:count]:
            x = layer(x)
        return x

    return side.conv(run, x)


@CONFIGS
@pytest.mark.parametrize("samples", [1, 7, 61])
def test_every_layer_of_the_encoder(config: MimiConfig, samples: int) -> None:
    x = normal(2, 2, 1, samples)
    for count in range(1, len(bench(config).side.codec.encoder.layers) + 1):
        parity(
            f"encoder layer {count - 1}", lambda side, n=count: first_layers(side, "encoder", n, x), config
        )


@CONFIGS
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_every_layer_of_the_decoder(config: MimiConfig, steps: int) -> None:
    x = normal(3, 2, config.hidden_size, steps)
    for count in range(1, len(bench(config).side.codec.decoder.layers) + 1):
        parity(
            f"decoder layer {count - 1}", lambda side, n=count: first_layers(side, "decoder", n, x), config
        )


@CONFIGS
@pytest.mark.parametrize("steps", [1, 6, 7, 8, 40])
def test_transformer(config: MimiConfig, steps: int) -> None:
    """Steps around the window's edge."""
    x = normal(4, 2, config.hidden_size, steps)
    parity(
        f"{steps} steps", lambda side: side.conv(lambda x: side.codec.decoder_transformer(x)[0], x), config
    )


@pytest.mark.parametrize("half", ["encoder_transformer", "decoder_transformer"])
def test_transformer_in_pieces(half: str) -> None:
    """Positions run on, and a piece of any length sees the whole window of its first step."""
    x = normal(5, 1, TINY.hidden_size, 40).astype(np.float64)

    def run(side: CodecSide, cuts: list[int]) -> np.ndarray:
        memory, made = None, []
        for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
            network = getattr(side.codec, half)
            read = side.channels(x[:, :, start:stop])
            y, memory = network(read, memory)
            made.append(side.from_channels(y))
        return np.concatenate(made, axis=2)

    with torch.inference_mode():
        for cuts in ([20], [1, 2, 3, 10, 19], list(range(1, 40))):
            np.testing.assert_allclose(
                run(bench().torch64, cuts), run(bench().torch64, []), rtol=0, atol=1e-12
            )
            parity(f"cuts {cuts}", partial(run, cuts=cuts))


def test_upsampling_is_a_transposed_convolution() -> None:
    """Two products a sample are torch's grouped convolution without its last, incomplete samples."""
    codec, x = bench().torch64.codec, torch.from_numpy(normal(6, 2, TINY.hidden_size, 9)).double()
    weight = codec.upsample.conv.weight
    expected = torch.nn.functional.conv_transpose1d(x, weight, stride=2, groups=TINY.hidden_size)[..., :18]
    with torch.inference_mode():
        torch.testing.assert_close(codec.upsample(x)[0], expected, rtol=0, atol=1e-14)
    parity("upsampling", lambda side: side.conv(lambda y: side.codec.upsample(y)[0], x.numpy()))


@pytest.mark.parametrize("steps", [1, 2, 5, 6])
def test_downsampling(steps: int) -> None:
    """The edges are repeated: two steps before, and one after an odd number."""
    x = normal(7, 2, TINY.hidden_size, steps)
    codec = bench().torch64.codec
    wide = torch.nn.functional.pad(torch.from_numpy(x).double(), (2, steps % 2), mode="replicate")
    expected = torch.nn.functional.conv1d(wide, codec.downsample.conv.weight, stride=2)
    with torch.inference_mode():
        made = codec.downsample(torch.from_numpy(x).double())[0]
    torch.testing.assert_close(made, expected.detach(), rtol=0, atol=1e-14)
    parity(f"{steps} steps", lambda side: side.conv(lambda y: side.codec.downsample(y)[0], x))


@CONFIGS
def test_quantizer_decode(config: MimiConfig) -> None:
    codes = random_codes(config, 2, 19)
    for books in range(1, config.n_codebooks + 1):
        parity(f"{books} codebooks", lambda side, n=books: side.latents(codes[:, :n]), config)


def test_first_of_equal_entries_wins() -> None:
    weights = mimi_weights(TINY)
    for half in ("semantic", "acoustic"):
        weights.tensors[f"quantizer.{half}_residual_vector_quantizer.layers.0.codebook.embed"][:] = 1.0
    trio = bench_of("mlx", "mimi", weights)
    for side in (trio.side, trio.torch32):
        assert (side.numpy(side.codec.encode(normal(8, 1, 90), 2)) == 0).all()


@CONFIGS
@pytest.mark.parametrize("length", [1, 61, 700])
def test_encode(config: MimiConfig, length: int) -> None:
    """Equal int32 codes on all sides: a frame per started hop, and the requested number of codebooks."""
    samples, trio = normal(9, 2, length), bench(config)
    frames = -(-length // config.hop_length)
    for books in (1, 2, config.n_codebooks):
        sides = (trio.side, trio.torch32, trio.torch64)
        codes = [side.numpy(side.codec.encode(samples, books)) for side in sides]
        assert codes[0].shape == (2, books, frames)
        assert {part.dtype for part in codes} == {np.dtype(np.int32)}
        for own in codes[:2]:
            np.testing.assert_array_equal(own, codes[2])


@CONFIGS
@pytest.mark.parametrize("frames", [1, 8, 26])
def test_decode(config: MimiConfig, frames: int) -> None:
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
            with pytest.raises(UsageError, match="give 1 to 5"):
                side.codec.encode(np.zeros((1, 9), np.float32), books)
            with pytest.raises(UsageError, match="give 1 to 5"):
                side.decode(np.zeros((1, books, 5), np.int32))


def heard(codec: Mimi, samples: np.ndarray) -> torch.Tensor:
    """Input of the quantizer in `encode`, of all windows. (B, L) → (B, C, T)."""
    seen, quantize = [], codec.quantizer.encode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            codec.quantizer, "encode", lambda latents, n: seen.append(latents) or quantize(latents, n)
        )
        codec.encode(samples.astype(np.float64), 1)
    return torch.cat(seen, dim=2)


@CONFIGS
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_encode(config: MimiConfig, largest: int, monkeypatch) -> None:
    """Codes on both sides, and latents in float64: codes would not show a context that is slightly short."""
    trio, books = bench(config), config.n_codebooks
    window = largest * config.hop_length
    for length in (window - 1, window, window + 1, 2 * window + config.hop_length // 2 + 1):
        samples = normal(length, 2, length)
        for side in (trio.side, trio.torch32):
            whole = side.numpy(side.codec.encode(samples, books))
            with monkeypatch.context() as patch:
                patch.setattr(side.codec, "policy", CodecPolicy(largest))
                np.testing.assert_array_equal(side.numpy(side.codec.encode(samples, books)), whole)
        known = heard(trio.torch64.codec, samples)
        with monkeypatch.context() as patch:
            patch.setattr(trio.torch64.codec, "policy", CodecPolicy(largest))
            torch.testing.assert_close(heard(trio.torch64.codec, samples), known, rtol=0, atol=1e-12)


@CONFIGS
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_decode(config: MimiConfig, largest: int, monkeypatch) -> None:
    trio = bench(config)
    for frames in (largest, largest + 1, 2 * largest + 3):
        codes = random_codes(config, 2, frames)
        truth, known = trio.torch64.decode(codes), trio.torch32.decode(codes)
        with monkeypatch.context() as patch:
            for side in (trio.side, trio.torch32, trio.torch64):
                patch.setattr(side.codec, "policy", CodecPolicy(largest))
            np.testing.assert_allclose(trio.torch64.decode(codes), truth, rtol=0, atol=1e-12)
            for side in (trio.side, trio.torch32):
                assert_within(side.decode(codes), known, truth, f"{frames} frames in windows")


SHAPES = st.builds(
    MimiConfig,
    sample_rate=st.just(1000),
    hidden_size=st.just(4),
    num_filters=st.just(3),
    num_residual_layers=st.integers(1, 3),
    dilation_growth_rate=st.integers(1, 3),
    upsampling_ratios=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
    kernel_size=st.integers(1, 9),
    last_kernel_size=st.integers(1, 9),
    residual_kernel_size=st.integers(1, 5),
    compress=st.integers(1, 3),
    num_hidden_layers=st.integers(1, 2),
    intermediate_size=st.just(5),
    num_attention_heads=st.just(2),
    num_key_value_heads=st.integers(1, 2),
    head_dim=st.just(2),
    norm_eps=st.just(1e-5),
    rope_theta=st.just(100.0),
    sliding_window=st.integers(1, 9),
    n_codebooks=st.just(3),
    n_semantic=st.integers(1, 2),
    codebook_size=st.just(8),
    codebook_dim=st.integers(3, 4),
)


@settings(max_examples=15)
@given(config=SHAPES, largest=st.integers(1, 12), hops=st.integers(1, 30), more=st.integers(0, 100))
def test_windows_of_any_shape_are_exact(config: MimiConfig, largest: int, hops: int, more: int) -> None:
    """In float64 one missing step of context has a million times the error of rounding."""
    side = bench_of("torch", "mimi", mimi_weights(config, seed=2)).torch64
    samples = normal(hops, 1, (hops - 1) * config.hop_length + 1 + more % config.hop_length)
    codes = random_codes(config, 1, hops)
    whole = heard(side.codec, samples), in_pieces(side, codes, [hops])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side.codec, "policy", CodecPolicy(largest))
        torch.testing.assert_close(heard(side.codec, samples), whole[0], rtol=0, atol=1e-11)
        np.testing.assert_allclose(side.decode(codes), whole[1], rtol=0, atol=1e-11)


def test_a_shorter_context_is_not_exact(monkeypatch) -> None:
    """decode_tail is needed to the last step: one less and a stream differs."""
    side, codes = bench().torch64, random_codes(TINY, 1, 20)
    known = in_pieces(side, codes, [20])
    monkeypatch.setattr(side.codec, "tail", decode_tail(TINY) - 1)
    assert np.abs(in_pieces(side, codes, [3, 7, 10]) - known).max() > 1e-6


def test_the_default_windows_cut_a_long_clip() -> None:
    assert bench().side.codec.policy == POLICY
    assert [stop for _, stop in POLICY.even_cuts(130)] == [64, 128, 130]
    assert [stop for _, stop in POLICY.decode_cuts(130)] == [2, 6, 14, 30, 62, 126, 130]
