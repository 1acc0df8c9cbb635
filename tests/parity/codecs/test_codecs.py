"""Codecs of every kind, MLX against PyTorch: in the derived bound, codes exactly.

Windows are compared with the whole run, in float64 to rounding: there one missing frame of context has a
million times the error of rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide
from tests.golden.encodec_checks import embedding
from tests.parity.codecs.kinds import (
    DAC,
    ENCODEC,
    MIMI,
    VOCOS,
    Config,
    bench,
    configs,
    decoded,
    decoded_at_once,
    encoded,
    least_window,
    lookahead,
    new_weights,
    of_weights,
    parity,
    part_decoded,
    random_codes,
    samples_of,
    ways,
)
from tests.tiny.inputs import normal
from tests.tolerance import assert_within
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.policy import CodecPolicy
from tts_core.errors import UsageError


@configs(DAC, ENCODEC, MIMI)
def test_quantizer_decode(config: Any) -> None:
    codes = random_codes(config, 2, 19)
    for books in range(1, config.n_codebooks + 1):
        parity(f"{books} codebooks", lambda side, n=books: side.latents(codes[:, :n]), config)


@pytest.mark.parametrize(
    ("config", "books"),
    [
        (DAC["dac 2-3-5"], ["quantizers.0.codebook.weight"]),
        (ENCODEC["encodec 5-2-3"], ["layers.0.codebook.embed"]),
        (
            MIMI["mimi 5-2-3"],
            [
                f"{half}_residual_vector_quantizer.layers.0.codebook.embed"
                for half in ("semantic", "acoustic")
            ],
        ),
    ],
    ids=["dac", "encodec", "mimi"],
)
def test_first_of_equal_entries_wins(config: Config, books: list[str]) -> None:
    weights = new_weights(config)
    for name in books:
        weights.tensors[f"quantizer.{name}"][:] = 1.0
    trio = of_weights(config, weights)
    for side in (trio.side, trio.torch32):
        assert (encoded(side, normal(8, 1, 90), 2)[:, : len(books)] == 0).all()


@configs(DAC, ENCODEC, MIMI)
@pytest.mark.parametrize("length", [1, 61, 700])
def test_encode(config: Any, length: int) -> None:
    """Equal int32 codes on all sides: a frame per started hop, and the requested number of codebooks."""
    samples, trio = normal(9, 2, length), bench(config)
    for books in (config.n_codebooks,) if config in DAC.values() else (1, 2, config.n_codebooks):
        codes = [encoded(side, samples, books) for side in (trio.side, trio.torch32, trio.torch64)]
        assert codes[0].shape == (2, books, -(-length // config.hop_length))
        assert {part.dtype for part in codes} == {np.dtype(np.int32)}
        for own in codes[:2]:
            np.testing.assert_array_equal(own, codes[2])


@configs(DAC, ENCODEC, MIMI, VOCOS)
@pytest.mark.parametrize("frames", [1, 8, 9, 26])
def test_decode(config: Config, frames: int) -> None:
    codes = random_codes(config, 2, frames)
    assert decoded(bench(config).side, codes).shape == (2, samples_of(config, frames))
    for way in ways(config):
        what = f"decode of {frames} frames {way}"
        parity(what, lambda side, how=way: side.numpy(side.codec.decode(codes, *how)), config)


@pytest.mark.parametrize("config", [next(iter(kind.values())) for kind in (DAC, ENCODEC, MIMI, VOCOS)])
def test_nothing_gives_nothing(config: Any) -> None:
    for side in (bench(config).side, bench(config).torch32):
        assert decoded(side, np.zeros((2, 3, 0), np.int32)).shape == (2, 0)
        if config not in VOCOS.values():
            nothing = encoded(side, np.zeros((2, 0), np.float32), config.n_codebooks)
            assert nothing.shape == (2, config.n_codebooks, 0)


@pytest.mark.parametrize("config", [ENCODEC["encodec 5-2-3"], MIMI["mimi 5-2-3"]], ids=["encodec", "mimi"])
def test_codebooks_that_are_not_there_are_refused(config: Any) -> None:
    for side in (bench(config).side, bench(config).torch32):
        for books in (0, config.n_codebooks + 1):
            with pytest.raises(UsageError, match=f"give 1 to {config.n_codebooks}"):
                side.codec.encode(np.zeros((1, 9), np.float32), books)
            with pytest.raises(UsageError, match=f"give 1 to {config.n_codebooks}"):
                side.decode(np.zeros((1, books, 5), np.int32))


@contextmanager
def in_windows(largest: int, *sides: CodecSide) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for side in sides:
            patch.setattr(side.codec, "policy", CodecPolicy(largest))
        yield


def heard(side: CodecSide, samples: np.ndarray) -> list[torch.Tensor]:
    """Input of the quantizer in `encode`, window by window."""
    seen, quantizer = [], side.codec.quantizer
    quantize = quantizer.encode
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantizer, "encode", lambda x, *books: seen.append(x) or quantize(x, *books))
        encoded(side, samples.astype(np.float64), 1)
    return seen


def heard_at_once(side: CodecSide, samples: np.ndarray) -> np.ndarray:
    if isinstance(side.codec.config, EncodecConfig):
        return embedding(side, samples)
    [latents] = heard(side, samples)
    return latents.numpy()


@configs(DAC, ENCODEC, MIMI)
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_encode(config: Any, largest: int) -> None:
    """Codes on both sides, and latents in float64: codes would not show a context that is slightly short."""
    trio, window = bench(config), least_window(config, largest) * config.hop_length
    counts = (2,) if config in DAC.values() else (1, 2)
    for length in (count * window + more for count in counts for more in (-1, 0, 1)):
        samples = normal(length, 2, length)
        for side in (trio.side, trio.torch32):
            whole = encoded(side, samples, config.n_codebooks)
            with in_windows(largest, side):
                np.testing.assert_array_equal(encoded(side, samples, config.n_codebooks), whole)
        with in_windows(largest, trio.torch64):
            latents = torch.cat(heard(trio.torch64, samples), dim=2).numpy()
        np.testing.assert_allclose(latents, heard_at_once(trio.torch64, samples), rtol=0, atol=1e-12)


@configs(DAC, ENCODEC, MIMI, VOCOS)
@pytest.mark.parametrize("largest", [1, 9])
def test_windows_equal_the_whole_decode(config: Config, largest: int) -> None:
    """`decode` in its own windows and in others, and any cut of `decode_frames`."""
    trio, window = bench(config), least_window(config, largest)
    in_parts = config in (*DAC.values(), *VOCOS.values())
    atol = 1e-11 if config in VOCOS.values() else 1e-12
    for frames in (26,) if in_parts else (max(window - 1, 1), window, window + 1, 2 * window + 3):
        codes, cuts = random_codes(config, 2, frames), [*range(0, frames, largest + 1), frames]
        truth, known = decoded_at_once(trio.torch64, codes), decoded_at_once(trio.torch32, codes)
        for side in vars(trio).values():
            found = {}
            if in_parts:
                parts = [part_decoded(side, codes, *cut) for cut in pairwise(cuts)]
                found = {"decode": decoded(side, codes), "pieces": np.concatenate(parts, axis=1)}
            with in_windows(largest, side):
                found["windows"] = decoded(side, codes)
            for what, samples in found.items():
                if side is trio.torch64:
                    np.testing.assert_allclose(samples, truth, rtol=0, atol=atol, err_msg=what)
                else:
                    assert_within(samples, known, truth, f"{side.kind}: {what} of {frames} frames")


@configs(DAC, VOCOS)
def test_a_prefix_decodes_as_in_the_whole(config: Any) -> None:
    """Frames whose lookahead is known are final, to the bit: a stream's samples equal those of the whole."""
    codes, ahead = random_codes(config, 1, 60), lookahead(config)
    for side in (bench(config).side, bench(config).torch32):
        for start, stop in ((0, 8), (8, 24), (24, 36)):
            known = codes[:, :, : stop + ahead]
            early, late, short = (
                part_decoded(side, part, start, stop) for part in (known, codes, known[:, :, :-1])
            )
            np.testing.assert_array_equal(early, late)
            assert short.shape != late.shape or (short != late).any(), "one frame less is too few"


def shapes(kind: type, **others: Any) -> st.SearchStrategy[Any]:
    return st.builds(
        kind,
        sample_rate=st.just(1000),
        hidden_size=st.just(4),
        num_filters=st.just(3),
        upsampling_ratios=st.lists(st.integers(2, 5), min_size=1, max_size=3).map(tuple),
        kernel_size=st.integers(1, 9),
        last_kernel_size=st.integers(1, 9),
        residual_kernel_size=st.integers(1, 5),
        compress=st.integers(1, 3),
        codebook_size=st.just(8),
        **others,
    )


SHAPES = {
    "encodec": shapes(EncodecConfig, num_lstm_layers=st.integers(1, 2), n_codebooks=st.just(2)),
    "mimi": shapes(
        MimiConfig,
        num_residual_layers=st.integers(1, 3),
        dilation_growth_rate=st.integers(1, 3),
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
        codebook_dim=st.integers(3, 4),
    ),
}


@pytest.mark.parametrize(("kind", "atol"), [("encodec", 1e-12), ("mimi", 1e-11)])
@settings(max_examples=15)
@given(data=st.data(), largest=st.integers(1, 12), hops=st.integers(1, 30), more=st.integers(0, 100))
def test_windows_of_any_shape_are_exact(
    kind: str, atol: float, data: st.DataObject, largest: int, hops: int, more: int
) -> None:
    config = data.draw(SHAPES[kind])
    trio: Bench[CodecSide] = of_weights(config, new_weights(config, seed=2), "torch")
    side, codes = trio.torch64, random_codes(config, 1, hops)
    samples = normal(hops, 1, (hops - 1) * config.hop_length + 1 + more % config.hop_length)
    whole, spoken = heard_at_once(side, samples), decoded_at_once(side, codes)
    with in_windows(largest, side):
        latents = heard(side, samples)
        np.testing.assert_allclose(decoded(side, codes), spoken, rtol=0, atol=atol)
    np.testing.assert_allclose(torch.cat(latents, dim=2).numpy(), whole, rtol=0, atol=atol)
    assert (len(latents) > 1) == (hops > least_window(config, largest))
