"""Vocos layer by layer, MLX against PyTorch, in the derived bound; windows against the whole run.

Whole decodes and their windows: test_codecs.py.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.codec_bench import bench_of
from tests.parity.codecs.kinds import VOCOS, bench, configs, parity, random_codes
from tests.sides import SIDES, Side
from tests.tiny.inputs import normal
from tests.tiny.networks import tiny
from tests.tolerance import EPS, bound
from tts_core.codecs import vocos_calls
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.vocos import LARGEST_MAGNITUDE, VocosConfig
from tts_core.errors import UsageError

TINY = VOCOS["vocos 42/12"]


@configs(VOCOS)
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
    codes, trio = random_codes(TINY, 2, 9, books), bench(TINY)
    if books < TINY.n_codebooks:
        codes[0, books - 1, 4] = TINY.codebook_size
    table = trio.torch64.codec.feature_extractor.codebook_weights.detach().numpy()
    rows = table[codes + TINY.codebook_size * np.arange(books)[:, None]].sum(axis=1)
    for side in (trio.side, trio.torch32):
        own = side.numpy(side.codec.feature_extractor(side.array(codes)))
        np.testing.assert_allclose(own, rows, rtol=0, atol=books * EPS * np.abs(table).max())  # of the sums


def test_what_the_model_does_not_have_is_refused() -> None:
    for side in (bench(TINY).side, bench(TINY).torch32):
        with pytest.raises(UsageError, match="give 0 to 2"):
            side.codec.decode(random_codes(TINY, 1, 3), 3)
        with pytest.raises(UsageError, match="give 1 to 4"):
            side.codec.decode(np.zeros((1, 5, 3), np.int32), 1)


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
    side = bench_of("float64", "vocos", tiny(config, seed=2)).torch64
    codes, start = random_codes(config, 1, frames), cut[0] % frames
    stop = min(start + cut[1], frames)
    piece = side.numpy(side.codec.decode_frames(side.array(codes), start, stop, 1))
    whole = side.numpy(side.codec.decode(codes, 1))
    np.testing.assert_allclose(
        piece, whole[:, start * hop : stop * hop], rtol=0, atol=1e-12 * np.abs(whole).max()
    )


@pytest.mark.parametrize("kind", SIDES)
def test_pieces_share_calls(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece's samples are those of its own decode; on a CPU bit for bit, since each runs by itself."""
    side, oracle = Side(kind), Side("float64")
    vocoder = side.network("vocos", tiny(TINY))
    policy = CodecPolicy(max_frames=16, first_frames=4)
    pieces = [random_codes(TINY, 1, frames)[0] for frames in (40, 17, 0, 40, 3)]
    host = side.module("host").Host(vocoder.head.out)
    decode_pieces = partial(vocos_calls.decode_codes, vocoder, host)

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
        exact = oracle.numpy(oracle.network("vocos", tiny(TINY)).decode(codes[None], 1))[0]
        np.testing.assert_allclose(one, own, rtol=0, atol=2 * bound(own, exact))
