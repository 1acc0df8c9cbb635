"""Qwen3-TTS's codec layer by layer, MLX against PyTorch, in the derived bound; codes exactly.

Pieces of a stream are compared with the whole run, in float64 to rounding.
"""

from functools import cache, partial

import numpy as np
import pytest

from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, bench_of
from tests.tiny.inputs import normal
from tests.tiny.qwen3 import codec_config, codec_weights
from tts_core.codecs.policy import CodecPolicy
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ, original_pieces

TINY = codec_config()
FRAMES = 23


@cache
def bench() -> Bench[CodecSide]:
    return bench_of("mlx", "qwen3_codec", codec_weights(TINY, seed=1))


def codes(frames: int = FRAMES, batch: int = 2) -> np.ndarray:
    shape = (batch, TINY.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, TINY.codebook_size, shape).astype(np.int32)


@pytest.mark.parametrize("frames", [1, 4, 5, 6, 14])
def test_transformer(frames: int) -> None:
    """Frames around the window's edge."""
    x = normal(4, 2, TINY.decoder.latent_dim, frames)
    bench().parity(f"{frames} frames", lambda side: side.conv(side.codec.decoder.pre_transformer, x))


@pytest.mark.parametrize("frames", [1, 3])
def test_every_layer_after_the_transformer(frames: int) -> None:
    x = normal(3, 2, TINY.decoder.latent_dim, frames)
    decoder = bench().side.codec.decoder
    count = sum(map(len, decoder.upsample)) + len(decoder.decoder)

    def run(side: CodecSide, last: int) -> np.ndarray:
        own = side.codec.decoder
        layers = [*(layer for pair in own.upsample for layer in pair), *own.decoder][:last]

        def through(x):
            for layer in layers:
                x = layer(x)
            return x

        return side.conv(through, x)

    for last in range(1, count + 1):
        bench().parity(f"layer {last - 1}", partial(run, last=last))


@pytest.mark.parametrize("samples", [1, 59, 60, 61, 700])
def test_encoding_is_equal_in_any_windows(samples: int) -> None:
    sound = normal(6, 2, samples)
    whole = bench().torch64.encode(sound)
    assert whole.shape == (2, TINY.n_codebooks, -(-samples // TINY.hop_length))
    for side in (bench().side, bench().torch32, bench().torch64):
        before = side.codec.policy
        for most in (1, 3, 64):
            side.codec.policy = CodecPolicy(max_frames=most, first_frames=1)
            np.testing.assert_array_equal(side.encode(sound), whole, f"{side.kind}, {most}")
        side.codec.policy = before


def test_original_pieces() -> None:
    """Pieces of 300 frames, each with 25 of context; the published transformer reads more than that."""
    [first, second, third] = original_pieces(700)
    assert [(piece.first, piece.start, piece.stop) for piece in (first, second, third)] == [
        *((0, 0, 300), (275, 300, 600), (575, 600, 700))
    ]
    assert original_pieces(300) == [first]
    assert QWEN3_CODEC_12HZ.decoder.sliding_window > 25
