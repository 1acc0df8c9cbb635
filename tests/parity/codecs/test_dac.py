"""DAC layer by layer, MLX against PyTorch: odd strides and lengths, in the derived bound; codes exactly."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.sides import ORACLE, PORT, YARDSTICK, Side, assert_parity
from tests.tiny.dia import dac_config, dac_weights
from tests.tiny.inputs import normal
from tests.tolerance import assert_within
from tts_core.codecs.dac import DacConfig, decode_lookahead, decoded_length, encode_window
from tts_core.codecs.policy import CodecPolicy

TINY = dac_config()
EVEN = replace(TINY, downsampling_ratios=(2, 4), upsampling_ratios=(4, 2))
UNEVEN = replace(TINY, downsampling_ratios=(2, 4, 5, 8), upsampling_ratios=(8, 5, 4, 2))
CONFIGS = pytest.mark.parametrize("config", [TINY, EVEN, UNEVEN], ids=["2-3-5", "2-4", "2-4-5-8"])
BLOCKS = pytest.mark.parametrize("block", [0, 1, 2])


@cache
def codec(side: Side, config: DacConfig = TINY) -> Any:
    return side.network("dac", dac_weights(config, seed=1))


def random_codes(config: DacConfig, batch: int, frames: int) -> np.ndarray:
    shape = (batch, config.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, config.codebook_size, shape).astype(np.int32)


def latents_parity(what: str, module: Callable[[Any], Any], x: np.ndarray, config: DacConfig = TINY) -> None:
    assert_parity(what, lambda side: side.from_channels(module(codec(side, config))(side.channels(x))))


def test_snake() -> None:
    """An alpha of 0 makes the epsilon of the reciprocal matter."""
    x = normal(1, 2, 4, 33) * 30

    def run(side: Side) -> np.ndarray:
        snake = side.network("dac", dac_weights(TINY)).encoder.block[0].snake1
        alpha = np.array([0.0, 1e-7, 0.5, 20.0], np.float32)[None, :, None]
        if side is PORT:
            snake.alpha = side.channels(alpha)
        else:
            snake.alpha.data = side.channels(alpha)
        return side.from_channels(snake(side.channels(x)))

    assert_parity("snake", run)


@pytest.mark.parametrize("unit", ["res_unit1", "res_unit2", "res_unit3"])
@pytest.mark.parametrize("length", [1, 13, 64])
def test_residual_unit(unit: str, length: int) -> None:
    latents_parity(unit, lambda dac: getattr(dac.encoder.block[1], unit), normal(2, 2, 8, length))


@BLOCKS
@pytest.mark.parametrize("length", [30, 31, 47])
def test_encoder_block(block: int, length: int) -> None:
    latents_parity(
        f"encoder block {block}", lambda dac: dac.encoder.block[block], normal(3, 2, 4 * 2**block, length)
    )


@BLOCKS
@pytest.mark.parametrize("length", [2, 7, 16])
def test_decoder_block(block: int, length: int) -> None:
    latents_parity(
        f"decoder block {block}", lambda dac: dac.decoder.block[block], normal(4, 2, 32 // 2**block, length)
    )


@CONFIGS
def test_encoder(config: DacConfig) -> None:
    samples = normal(5, 2, 1, 5 * config.hop_length)
    latents_parity("encoder", lambda dac: dac.encoder, samples, config)


@CONFIGS
@pytest.mark.parametrize("frames", [2, 3, 17])
def test_decoder(config: DacConfig, frames: int) -> None:
    latents = normal(6, 2, config.hidden_size, frames)
    latents_parity("decoder", lambda dac: dac.decoder, latents, config)


def test_quantizer_decode() -> None:
    codes = random_codes(TINY, 2, 19)
    for books in range(1, TINY.n_codebooks + 1):
        assert_parity(
            f"{books} codebooks decoded",
            lambda side, books=books: side.from_channels(
                codec(side).quantizer.decode(side.array(codes[:, :books]))
            ),
        )


def test_quantizer_encode() -> None:
    """Equal codes, far enough from ties to be evidence."""
    latents = normal(7, 2, TINY.hidden_size, 40)
    codes = {
        side: side.numpy(codec(side).quantizer.encode(side.channels(latents)))
        for side in (ORACLE, YARDSTICK, PORT)
    }
    assert margin(latents) > 1e-5
    for side in (YARDSTICK, PORT):
        assert codes[side].dtype == np.int32
        np.testing.assert_array_equal(codes[side], codes[ORACLE])


def margin(latents: np.ndarray) -> float:
    """Smallest gap between the nearest and second-nearest entry of all codebooks, in float64."""
    rest, gaps = ORACLE.channels(latents), []
    for quantizer in codec(ORACLE).quantizer.quantizers:
        turned = torch.nn.functional.normalize(quantizer.in_proj(rest).transpose(1, 2), dim=-1)
        entries = torch.nn.functional.normalize(quantizer.codebook.weight, dim=-1)
        two = torch.cdist(turned, entries).square().topk(2, largest=False).values
        gaps.append(float((two[..., 1] - two[..., 0]).min()))
        rest = rest - quantizer.decode(quantizer.encode(rest))
    return min(gaps)


def test_first_of_equal_entries_wins() -> None:
    for side in (YARDSTICK, PORT):
        weights = dac_weights(TINY)
        weights.tensors["quantizer.quantizers.0.codebook.weight"][:] = 1.0
        codes = side.numpy(side.network("dac", weights).encode(side.array(normal(8, 1, 90))))
        assert (codes[:, 0] == 0).all()


@CONFIGS
@pytest.mark.parametrize("frames", [1, 8, 9, 26])
def test_decode(config: DacConfig, frames: int) -> None:
    codes = random_codes(config, 2, frames)

    def run(side: Side) -> np.ndarray:
        samples = side.numpy(codec(side, config).decode(side.array(codes)))
        assert samples.shape == (2, decoded_length(config, frames))
        return samples

    assert_parity(f"decode of {frames} frames", run)


@CONFIGS
@pytest.mark.parametrize("frames", [1, 9, 26])
def test_windows_equal_the_whole_decode(config: DacConfig, frames: int) -> None:
    """`decode` and any cut of `decode_frames` against one run of the decoder over all frames."""
    codes = random_codes(config, 2, frames)

    def whole(side: Side) -> np.ndarray:
        dac = codec(side, config)
        return side.from_channels(dac.decoder(dac.quantizer.decode(side.array(codes))))[:, 0]

    def cut(side: Side, size: int) -> np.ndarray:
        dac, starts = codec(side, config), range(0, frames, size)
        pieces = [dac.decode_frames(side.array(codes), at, min(at + size, frames)) for at in starts]
        return np.concatenate([side.numpy(piece) for piece in pieces], axis=1)

    truth, known = whole(ORACLE), whole(YARDSTICK)
    for side in (ORACLE, YARDSTICK, PORT):
        pieces = {f"pieces of {size}": cut(side, size) for size in ((2,) if frames < 10 else (11,))}
        pieces["decode"] = side.numpy(codec(side, config).decode(side.array(codes)))
        for what, samples in pieces.items():
            if side is ORACLE:
                np.testing.assert_allclose(samples, truth, rtol=0, atol=1e-12, err_msg=what)
            else:
                assert_within(samples, known, truth, f"{side.kind}: {what}")


def test_a_prefix_decodes_as_in_the_whole() -> None:
    """Frames whose lookahead is known are final, to the bit: a stream's samples equal those of `generate`."""
    codes, lookahead = random_codes(TINY, 1, 60), decode_lookahead(TINY)
    for side in (YARDSTICK, PORT):
        dac = codec(side)
        for start, stop in ((0, 8), (8, 24), (24, 41)):
            known = codes[:, :, : stop + lookahead]
            early = side.numpy(dac.decode_frames(side.array(known), start, stop))
            late = side.numpy(dac.decode_frames(side.array(codes), start, stop))
            np.testing.assert_array_equal(early, late)
            if stop + lookahead < 60:  # one frame less is too few
                short = side.numpy(dac.decode_frames(side.array(known[:, :, :-1]), start, stop))
                assert short.shape != late.shape or (short != late).any()


@CONFIGS
@pytest.mark.parametrize("length", [1, 31, 500])
def test_encode(config: DacConfig, length: int) -> None:
    samples = normal(9, 2, length)
    codes = {
        side: side.numpy(codec(side, config).encode(side.array(samples)))
        for side in (ORACLE, YARDSTICK, PORT)
    }
    assert codes[PORT].shape == (2, config.n_codebooks, -(-length // config.hop_length))
    np.testing.assert_array_equal(codes[YARDSTICK], codes[ORACLE])
    np.testing.assert_array_equal(codes[PORT], codes[ORACLE])


@CONFIGS
def test_windows_equal_the_whole_encode(config: DacConfig) -> None:
    frames = 25
    samples = normal(10, 2, frames * config.hop_length - 3)
    padded = np.pad(samples, ((0, 0), (0, 3)))
    for side in (ORACLE, YARDSTICK, PORT):
        dac = codec(side, config)
        whole = side.numpy(dac.quantizer.encode(dac.encoder(side.channels(padded[:, None]))))
        for largest in (3, 11):
            dac.policy = CodecPolicy(largest)
            np.testing.assert_array_equal(side.numpy(dac.encode(side.array(samples))), whole)


@CONFIGS
@pytest.mark.parametrize(("start", "stop"), [(0, 3), (11, 14), (22, 25)])
def test_latents_of_a_window_are_the_wholes(config: DacConfig, start: int, stop: int) -> None:
    """Equal latents; codes would not show a context that is slightly short."""
    hop, encoder = config.hop_length, codec(ORACLE, config).encoder
    samples = ORACLE.array(normal(11, 1, 1, 25 * hop))
    window = encode_window(config, start, stop, 25)
    part = encoder(samples[..., window.first * hop : window.last * hop])
    torch.testing.assert_close(
        part[..., start - window.first : stop - window.first],
        encoder(samples)[..., start:stop],
        rtol=0,
        atol=1e-12,
    )


def test_windows_are_narrower_than_the_whole() -> None:
    """The two tests above compare different runs."""
    window = encode_window(TINY, 16, 23, 40)
    assert (window.first, window.last) != (0, 40)
