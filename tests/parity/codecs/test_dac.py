"""DAC layer by layer, MLX against PyTorch, in the derived bound; its quantizer's choices and its windows."""

import numpy as np
import torch

from tests.golden.codec_bench import CodecSide
from tests.parity.codecs.kinds import DAC, bench, new_weights, of_weights
from tests.tiny.inputs import normal
from tts_core.codecs.dac import encode_window

TINY = DAC["dac 2-3-5"]


def test_snake() -> None:
    """An alpha of 0 makes the epsilon of the reciprocal matter."""
    x = normal(1, 2, 4, 33) * 30
    weights = new_weights(TINY)
    weights.tensors["encoder.block.0.snake1.alpha"][:] = np.array([0.0, 1e-7, 0.5, 20.0])[None, :, None]
    trio = of_weights(TINY, weights)
    trio.parity("snake", lambda side: side.conv(side.codec.encoder.block[0].snake1, x))


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
