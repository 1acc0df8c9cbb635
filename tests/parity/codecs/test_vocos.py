"""Vocos layer by layer, MLX against PyTorch, in the derived bound; windows against the whole run."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, bench_of
from tests.sides import BOTH, Side
from tests.tiny.codecs import vocos_config, vocos_weights
from tests.tiny.inputs import normal
from tests.tolerance import assert_within
from tts_core.codecs import vocos_calls
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import LARGEST_MAGNITUDE, VocosConfig, decode_lookahead
from tts_core.errors import UsageError

TINY = vocos_config()
REAL = replace(TINY, n_fft=32, hop_length=8, num_layers=1)  # four hops a frame, as published
BARE = replace(TINY, n_fft=10, hop_length=6, num_layers=1)  # frames with little overlap
CONFIGS = pytest.mark.parametrize("config", [TINY, REAL, BARE], ids=["42/12", "32/8", "10/6"])


@cache
def bench(config: VocosConfig = TINY) -> Bench[CodecSide]:
    return bench_of("mlx", "vocos", vocos_weights(config, seed=1))


def parity(what: str, run: Callable[[CodecSide], np.ndarray], config: VocosConfig = TINY) -> None:
    bench(config).parity(what, run)


def random_codes(config: VocosConfig, batch: int, frames: int, books: int | None = None) -> np.ndarray:
    shape = (batch, books or config.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, config.codebook_size, shape).astype(np.int32)


def decode(side: CodecSide, codes: np.ndarray, bandwidth: int = 1) -> np.ndarray:
    return side.numpy(side.codec.decode(codes, bandwidth))


@pytest.mark.parametrize("bandwidth", [0, 1, 2])
def test_norm(bandwidth: int) -> None:
    """Rows so small that the epsilon matters, and rows so large that it does not."""
    x = normal(1, 2, 9, TINY.dim) * np.array([1e-6, 1e-4, 1e-3, 1, 30, 1e3, 1, 1, 0])[:, None].astype(
        np.float32
    )
    for part in ("norm", "convnext"):

        def run(side: CodecSide, part: str = part) -> np.ndarray:
            found = getattr(side.codec.backbone, part)
            norm = found if part == "norm" else found[1].norm
            return side.numpy(norm(side.array(x), bandwidth))

        parity(part, run)
    parity("final norm", lambda side: side.numpy(side.codec.backbone.final_layer_norm(side.array(x))))


@pytest.mark.parametrize("length", [1, 3, 4, 20])
def test_block_and_backbone(length: int) -> None:
    x, features = normal(2, 2, length, TINY.dim), normal(3, 2, length, TINY.input_channels)
    parity("block", lambda side: side.numpy(side.codec.backbone.convnext[0](side.array(x), 2)))
    parity("backbone", lambda side: side.numpy(side.codec.backbone(side.array(features), 2)))


@CONFIGS
@pytest.mark.parametrize("length", [1, 2, 17])
def test_head(config: VocosConfig, length: int) -> None:
    """Some magnitudes are cut at the limit."""
    x = normal(4, 2, length, config.dim) * 3
    out = bench(config).torch64.codec.head.out(bench(config).torch64.array(x)).detach().numpy()
    assert (out[..., : config.n_bins] > np.log(LARGEST_MAGNITUDE)).any() or length < 17
    parity("head", lambda side: side.numpy(side.codec.head(side.array(x))), config)


@pytest.mark.parametrize("books", [1, 3, 4])
def test_features(books: int) -> None:
    """The sum of one row per codebook; a code past its book reads the next one's first row, as upstream."""
    codes, trio = random_codes(TINY, 2, 9, books), bench()
    if books < TINY.n_codebooks:
        codes[0, books - 1, 4] = TINY.codebook_size
    table = trio.torch64.codec.feature_extractor.codebook_weights.detach().numpy()
    rows = table[codes + TINY.codebook_size * np.arange(books)[:, None]].sum(axis=1)
    for side in (trio.side, trio.torch32):
        own = side.numpy(side.codec.feature_extractor(side.array(codes)))
        np.testing.assert_allclose(own, rows, rtol=0, atol=4e-7)


@CONFIGS
@pytest.mark.parametrize("frames", [1, 2, 26])
def test_decode(config: VocosConfig, frames: int) -> None:
    codes = random_codes(config, 2, frames)
    for bandwidth in range(config.num_bandwidths):
        assert decode(bench(config).side, codes, bandwidth).shape == (2, frames * config.hop_length)
        parity(f"decode at {bandwidth}", lambda side, at=bandwidth: decode(side, codes, at), config)


def test_nothing_gives_nothing() -> None:
    for side in (bench().side, bench().torch32):
        assert decode(side, np.zeros((2, 4, 0), np.int32)).shape == (2, 0)


def test_what_the_model_does_not_have_is_refused() -> None:
    for side in (bench().side, bench().torch32):
        with pytest.raises(UsageError, match="give 0 to 2"):
            decode(side, random_codes(TINY, 1, 3), 3)
        with pytest.raises(UsageError, match="give 1 to 4"):
            decode(side, np.zeros((1, 5, 3), np.int32))


@CONFIGS
@pytest.mark.parametrize("size", [1, 11])
def test_windows_equal_the_whole_decode(config: VocosConfig, size: int, monkeypatch) -> None:
    """`decode`, and any cut of `decode_frames`."""
    trio, frames = bench(config), 40
    codes = random_codes(config, 2, frames)
    whole = {name: decode(side, codes) for name, side in vars(trio).items()}
    for name, side in vars(trio).items():
        monkeypatch.setattr(side.codec, "policy", CodecPolicy(size))
        cuts = [(at, min(at + size, frames)) for at in range(0, frames, size)]
        pieces = [side.numpy(side.codec.decode_frames(side.array(codes), *cut, 1)) for cut in cuts]
        for what, samples in (("decode", decode(side, codes)), ("pieces", np.concatenate(pieces, axis=1))):
            if name == "torch64":
                np.testing.assert_allclose(samples, whole[name], rtol=0, atol=1e-11, err_msg=what)
            else:
                assert_within(samples, whole["torch32"], whole["torch64"], f"{name}: {what}")


@CONFIGS
def test_a_prefix_decodes_as_in_the_whole(config: VocosConfig) -> None:
    """Frames whose lookahead is known are final, to the bit: a stream's samples equal those of `decode`."""
    codes, lookahead = random_codes(config, 1, 60), decode_lookahead(config)
    for side in (bench(config).side, bench(config).torch32):
        for start, stop in ((0, 8), (8, 24), (24, 36)):
            known = codes[:, :, : stop + lookahead]
            early, late, short = (
                side.numpy(side.codec.decode_frames(side.array(part), start, stop, 0))
                for part in (known, codes, known[:, :, :-1])
            )
            np.testing.assert_array_equal(early, late)
            assert (short != late).any()  # one frame less is too few


@settings(max_examples=20)
@given(
    hop=st.integers(1, 6).map(lambda half: 2 * half),
    overlap=st.integers(1, 12).map(lambda half: 2 * half),
    layers=st.integers(1, 3),
    frames=st.integers(1, 50),
    cut=st.tuples(st.integers(0, 49), st.integers(1, 20)),
)
def test_windows_of_any_shape_are_exact(
    hop: int, overlap: int, layers: int, frames: int, cut: tuple[int, int]
) -> None:
    """In float64 one missing frame of context has a million times the error of rounding."""
    config = replace(TINY, n_fft=hop + overlap, hop_length=hop, num_layers=layers)
    side = bench_of("float64", "vocos", vocos_weights(config, seed=2)).torch64
    codes, start = random_codes(config, 1, frames), cut[0] % frames
    stop = min(start + cut[1], frames)
    piece = side.numpy(side.codec.decode_frames(side.array(codes), start, stop, 1))
    whole = decode(side, codes)
    np.testing.assert_allclose(
        piece, whole[:, start * hop : stop * hop], rtol=0, atol=1e-12 * np.abs(whole).max()
    )


@pytest.mark.parametrize("kind", BOTH)
def test_pieces_share_calls(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece's samples are those of its own decode; on a CPU bit for bit, since each runs by itself."""
    side = Side(kind)
    vocoder = side.network("vocos", vocos_weights(TINY))
    policy = CodecPolicy(max_frames=16, first_frames=4)
    pieces = [random_codes(TINY, 1, frames)[0] for frames in (40, 17, 0, 40, 3)]
    host = side.module("host").Host(vocoder.head.out)
    decode_pieces = partial(vocos_calls.decode_pieces, vocoder, host)

    def decoded() -> tuple[list[np.ndarray], int]:
        counted = list[int]()
        made = decode_pieces(pieces, policy.decode_cuts, 1, check=lambda: counted.append(1))
        return made, len(counted)

    alone = [decode_pieces([one], policy.decode_cuts, 1)[0] for one in pieces]
    made, count = decoded()
    for one, own in zip(made, alone, strict=True):
        np.testing.assert_array_equal(one, own)
    monkeypatch.setattr(vocos_calls, "ONE_BY_ONE", ())
    made, fewer = decoded()
    assert fewer < count
    for one, own, codes in zip(made, alone, pieces, strict=True):
        assert (one.shape, one.dtype) == ((codes.shape[1] * TINY.hop_length,), np.float32)
        np.testing.assert_allclose(one, own, rtol=0, atol=1e-5 * max(1, np.abs(own).max(initial=0)))
