"""DAC layer by layer, MLX against PyTorch, in the derived bound; its quantizer's choices and its windows."""

import numpy as np
import pytest
import torch

from tests.golden.codec_bench import CodecSide
from tests.parity.codecs.kinds import DAC, bench, configs, new_weights, of_weights, parity
from tests.tiny.inputs import normal
from tts_core.codecs.dac import DacConfig, encode_window

TINY = DAC["dac 2-3-5"]


def test_snake() -> None:
    """An alpha of 0 makes the epsilon of the reciprocal matter."""
    x = normal(1, 2, 4, 33) * 30
    weights = new_weights(TINY)
    weights.tensors["encoder.block.0.snake1.alpha"][:] = np.array([0.0, 1e-7, 0.5, 20.0])[None, :, None]
    trio = of_weights(TINY, weights)
    trio.parity("snake", lambda side: side.conv(side.codec.encoder.block[0].snake1, x))


@pytest.mark.parametrize("unit", ["res_unit1", "res_unit2", "res_unit3"])
@pytest.mark.parametrize("length", [1, 13, 64])
def test_residual_unit(unit: str, length: int) -> None:
    x = normal(2, 2, 8, length)
    parity(unit, lambda side: side.conv(getattr(side.codec.encoder.block[1], unit), x), TINY)


@pytest.mark.parametrize("block", [0, 1, 2])
def test_blocks(block: int) -> None:
    for length in (30, 31, 47):
        x = normal(3, 2, 4 * 2**block, length)
        parity(f"encoder {length}", lambda side, x=x: side.conv(side.codec.encoder.block[block], x), TINY)
    for length in (2, 7, 16):
        x = normal(4, 2, 32 // 2**block, length)
        parity(f"decoder {length}", lambda side, x=x: side.conv(side.codec.decoder.block[block], x), TINY)


@configs(DAC)
def test_encoder_and_decoder(config: DacConfig) -> None:
    samples = normal(5, 2, 1, 5 * config.hop_length)
    parity("encoder", lambda side: side.conv(side.codec.encoder, samples), config)
    for frames in (2, 3, 17):
        x = normal(6, 2, config.hidden_size, frames)
        parity(f"decoder of {frames}", lambda side, x=x: side.conv(side.codec.decoder, x), config)


def test_quantizer_encode() -> None:
    """Equal codes, far enough from ties to be evidence."""
    latents, trio = normal(7, 2, TINY.hidden_size, 40), bench(TINY)
    own, known, truth = trio.results(
        lambda side: side.numpy(side.codec.quantizer.encode(side.channels(latents)))
    )
    assert margin(trio.torch64, latents) > 1e-5
    for codes in (own, known):
        assert codes.dtype == np.int32
        np.testing.assert_array_equal(codes, truth)


def margin(side: CodecSide, latents: np.ndarray) -> float:
    """Smallest gap between the nearest and second-nearest entry of all codebooks, in float64."""
    rest, gaps = side.channels(latents), []
    for quantizer in side.codec.quantizer.quantizers:
        turned = torch.nn.functional.normalize(quantizer.in_proj(rest).transpose(1, 2), dim=-1)
        entries = torch.nn.functional.normalize(quantizer.codebook.weight, dim=-1)
        two = torch.cdist(turned, entries).square().topk(2, largest=False).values
        gaps.append(float((two[..., 1] - two[..., 0]).min()))
        rest = rest - quantizer.decode(quantizer.encode(rest))
    return min(gaps)


def test_windows_are_narrower_than_the_whole() -> None:
    """Comparisons of windows with the whole compare different runs."""
    window = encode_window(TINY, 16, 23, 40)
    assert (window.first, window.last) != (0, 40)
