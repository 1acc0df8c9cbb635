"""Small codecs of every kind, and the calls in which they differ. NumPy in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.golden import mimi_checks
from tests.golden.bench import Bench
from tests.golden.codec_bench import CodecSide, bench_of
from tests.tiny.networks import (
    KINDS,
    codec_config,
    dac_config,
    encodec_config,
    mimi_config,
    tiny,
    vocos_config,
)
from tts_core.codecs import dac, vocos
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig
from tts_core.codecs.vocos import VocosConfig

Config = DacConfig | EncodecConfig | MimiConfig | Qwen3CodecConfig | VocosConfig

BARE = {"kernel_size": 2, "last_kernel_size": 1, "residual_kernel_size": 1, "compress": 1}
DAC = {
    "dac 2-3-5": dac_config(),
    "dac 2-4": replace(dac_config(), downsampling_ratios=(2, 4), upsampling_ratios=(4, 2)),
    "dac 2-4-5-8": replace(dac_config(), downsampling_ratios=(2, 4, 5, 8), upsampling_ratios=(8, 5, 4, 2)),
}
ENCODEC = {
    "encodec 5-2-3": encodec_config(),
    "encodec 8-5-4-2": replace(
        encodec_config(),
        upsampling_ratios=(8, 5, 4, 2),
        num_filters=3,
        last_kernel_size=7,
        num_lstm_layers=1,
    ),
    "encodec 2": replace(encodec_config(), upsampling_ratios=(2,), **BARE),
}
MIMI = {
    "mimi 5-2-3": mimi_config(),
    "mimi 8-6-5-4": replace(
        mimi_config(),
        upsampling_ratios=(8, 6, 5, 4),
        num_filters=3,
        num_residual_layers=1,
        sample_rate=24000,
    ),
    "mimi 2": replace(
        mimi_config(), upsampling_ratios=(2,), sliding_window=1, codebook_dim=14, n_semantic=2, **BARE
    ),
}
QWEN3 = {"qwen3": codec_config()}
VOCOS = {
    "vocos 42/12": vocos_config(),
    # four hops a frame, as published
    "vocos 32/8": replace(vocos_config(), n_fft=32, hop_length=8, num_layers=1),
    # frames with little overlap
    "vocos 10/6": replace(vocos_config(), n_fft=10, hop_length=6, num_layers=1),
}


def configs(*kinds: Mapping[str, Config]) -> pytest.MarkDecorator:
    every = {name: config for kind in kinds for name, config in kind.items()}
    return pytest.mark.parametrize("config", every.values(), ids=every)


def of_weights(config: Config, weights: Any, side: str = "mlx") -> Bench[CodecSide]:
    return bench_of(side, KINDS[type(config)], weights)


def new_weights(config: Config, seed: int = 1) -> Any:
    return tiny(config, seed=seed)


@cache
def bench(config: Config) -> Bench[CodecSide]:
    return of_weights(config, new_weights(config))


def parity(what: str, run: Callable[[CodecSide], np.ndarray], config: Config) -> None:
    bench(config).parity(what, run)


def random_codes(config: Config, batch: int, frames: int, books: int | None = None) -> np.ndarray:
    shape = (batch, books or config.n_codebooks, frames)
    return np.random.default_rng(frames).integers(0, config.codebook_size, shape).astype(np.int32)


def encoded(side: CodecSide, samples: np.ndarray, books: int) -> np.ndarray:
    """books: of codes; DAC gives all."""
    more = () if isinstance(side.codec.config, DacConfig) else (books,)
    return side.numpy(side.codec.encode(samples, *more))


def ways(config: Config) -> list[tuple[int, ...]]:
    """The other arguments with which codes are decoded: bandwidths of Vocos."""
    return [(way,) for way in range(config.num_bandwidths)] if isinstance(config, VocosConfig) else [()]


def decoded(side: CodecSide, codes: np.ndarray) -> np.ndarray:
    return side.numpy(side.codec.decode(codes, *ways(side.codec.config)[-1]))


def decoded_at_once(side: CodecSide, codes: np.ndarray) -> np.ndarray:
    """The network over all frames, without windows."""
    codec, read = side.codec, side.array(codes)
    if isinstance(codec.config, MimiConfig):
        return mimi_checks.in_pieces(side, codes, [codes.shape[2]])
    if isinstance(codec.config, VocosConfig):
        [way] = ways(codec.config)[-1]
        return side.numpy(codec.head(codec.backbone(codec.feature_extractor(read), way)))
    return side.from_channels(codec.decoder(codec.quantizer.decode(read)))[:, 0]


def part_decoded(side: CodecSide, codes: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Frames of DAC or Vocos."""
    return side.numpy(side.codec.decode_frames(side.array(codes), start, stop, *ways(side.codec.config)[-1]))


def samples_of(config: Config, frames: int) -> int:
    if isinstance(config, DacConfig):
        return dac.decoded_length(config, frames)
    return frames * config.hop_length


def least_window(config: Config, largest: int) -> int:
    """Frames of the windows of a policy of `largest` frames: EnCodec's are no shorter than its kernels."""
    if not isinstance(config, EncodecConfig):
        return largest
    return max(largest, 2, config.kernel_size, config.last_kernel_size, config.residual_kernel_size)


def lookahead(config: DacConfig | VocosConfig) -> int:
    is_dac = isinstance(config, DacConfig)
    return dac.decode_lookahead(config) if is_dac else vocos.decode_lookahead(config)
