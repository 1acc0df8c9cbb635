"""Small networks of the real structure with random weights, fast enough to run hundreds of times.

Nothing divides evenly that need not: query heads differ from key heads, widths from heads x head width,
stacks from each other; delays are in no order, strides odd, kernels of all sizes, windows short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from tests.tts_core.mars5.test_tokens import VOCABULARY
from tts_core import models
from tts_core.codecs import encodec, mimi
from tts_core.codecs.dac import DacConfig
from tts_core.codecs.encodec import EncodecConfig
from tts_core.codecs.mbd import (
    MbdBandConfig,
    MbdConfig,
    MbdProcessorConfig,
    MbdScheduleConfig,
    MbdUnetConfig,
)
from tts_core.codecs.mimi import MimiConfig
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig, Qwen3DecoderConfig
from tts_core.codecs.vocos import VocosConfig
from tts_core.config import LARGEST
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.options import DiaSampling
from tts_core.dia2.config import Dia2Config, Dia2StackConfig
from tts_core.mars5.config import CodecLMConfig, ResidualTransformerConfig
from tts_core.metavoice.config import FirstStageConfig, SecondStageConfig
from tts_core.qwen3.config import Qwen3Config, Qwen3StackConfig, Speaker
from tts_core.qwen3.speaker import SpeakerConfig

Config = TypeVar("Config")


@dataclass(frozen=True)
class Weights(Generic[Config]):
    """A network's tensors under canonical names, in PyTorch's axis order; has the interface of a part."""

    config: Config
    tensors: dict[str, np.ndarray]

    def names(self) -> list[str]:
        return list(self.tensors)

    def read(self, name: str) -> np.ndarray:
        return self.tensors[name].copy()


Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
Rules = tuple[tuple[str, Draw], ...]
CODES, EOS, PAD, BOS = 60, 60, 61, 62
SAMPLING = DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.9, top_k=20)
# fmt: off
KERNELS = {"kernel_size": 7, "last_kernel_size": 4, "residual_kernel_size": 3, "compress": 2}


def dia_config(*, cross_rope: bool = False, positions: int = 2400, text_positions: int = 90) -> DiaConfig:
    """positions, text_positions: the longest grid in rows and text in bytes."""
    encoder = DiaEncoderConfig(
        hidden_size=40, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=12, max_position_embeddings=text_positions, vocab_size=256,
        norm_eps=1e-5, rope_theta=10000.0,
    )
    decoder = DiaDecoderConfig(
        hidden_size=44, intermediate_size=72, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, head_dim=8, cross_hidden_size=40, cross_num_attention_heads=4,
        cross_num_key_value_heads=2, cross_head_dim=14, max_position_embeddings=positions, vocab_size=67,
        num_channels=4, norm_eps=1e-5, rope_theta=10000.0,
    )
    return DiaConfig(
        encoder_config=encoder, decoder_config=decoder, delay_pattern=(0, 3, 1, 3), bos_token_id=BOS,
        eos_token_id=EOS, pad_token_id=PAD, cross_rope=cross_rope, sampling=SAMPLING,
    )


def dac_config() -> DacConfig:
    return DacConfig(
        sample_rate=1000, encoder_hidden_size=4, downsampling_ratios=(2, 3, 5), hidden_size=20,
        decoder_hidden_size=32, upsampling_ratios=(5, 3, 2), n_codebooks=4, codebook_size=CODES,
        codebook_dim=(3, 4, 5, 3),
    )


def published_dac_config() -> DacConfig:
    """The same as the transformers layout can state it: one width for all codebooks."""
    return replace(dac_config(), codebook_dim=(4,) * 4)


def encodec_config() -> EncodecConfig:
    return EncodecConfig(
        sample_rate=1000, hidden_size=11, num_filters=5, upsampling_ratios=(5, 2, 3), num_lstm_layers=2,
        n_codebooks=4, codebook_size=40, **KERNELS,
    )


def vocos_config() -> VocosConfig:
    """Frames of three and a half hops; spectra wider than the network."""
    return VocosConfig(
        sample_rate=1000, n_codebooks=4, codebook_size=40, input_channels=11, dim=20, intermediate_dim=52,
        num_layers=3, num_bandwidths=3, n_fft=42, hop_length=12,
    )


def mimi_config() -> MimiConfig:
    return MimiConfig(
        sample_rate=1500, hidden_size=14, num_filters=5, num_residual_layers=2, dilation_growth_rate=3,
        upsampling_ratios=(5, 2, 3), num_hidden_layers=2, intermediate_size=23, num_attention_heads=4,
        num_key_value_heads=2, head_dim=6, norm_eps=1e-5, rope_theta=10000.0, sliding_window=7, n_codebooks=5,
        n_semantic=1, codebook_size=40, codebook_dim=9, **KERNELS,
    )


def dia2_config() -> Dia2Config:
    """Heads that are wider than the network, gaps in the schedule, unequal delays, low-rank text."""
    return Dia2Config(
        transformer=Dia2StackConfig(2, 20, 28, 6, 2, 8, ("silu", "linear")),
        depformer=Dia2StackConfig(2, 12, 18, 2, 2, 6, ("gelu", "linear")),
        low_rank_dim=14, depformer_has_rope=True, depformer_has_text=True, rope_min_timescale=2,
        rope_max_timescale=700, norm_eps=1e-3, text_vocab_size=371, audio_vocab_size=35, action_vocab_size=3,
        text_bos_id=1, text_pad_id=3, text_new_word_id=2, text_zero_id=7, audio_pad_id=33, audio_bos_id=34,
        delay_pattern=(2, 4, 1, 4, 3, 4), second_stream_ahead=1, weights_schedule=(0, 2, 2, 5, 0),
        max_context_steps=60,
    )


def other_config() -> Dia2Config:
    """The other switches: nothing in common but the ids."""
    config = dia2_config()
    return replace(
        config, depformer=replace(config.depformer, activations=("relu", "silu")), low_rank_dim=20,
        depformer_has_rope=False, depformer_has_text=False, second_stream_ahead=0,
        weights_schedule=(3, 3, 3, 3, 3),
    )


def wide_config() -> Dia2Config:
    """Widths that groups of 32 fit."""
    return replace(
        dia2_config(), transformer=Dia2StackConfig(2, 64, 96, 4, 2, 16, ("silu", "linear")),
        depformer=Dia2StackConfig(2, 32, 64, 2, 2, 16, ("silu", "linear")), low_rank_dim=64,
        delay_pattern=(2, 4, 1, 4, 3), weights_schedule=(0, 1, 1, 0),
    )


def ar_config(**changes: Any) -> CodecLMConfig:
    config = CodecLMConfig(
        vocab_size=VOCABULARY.size, hidden_size=48, intermediate_size=68, num_hidden_layers=3,
        num_attention_heads=3, norm_eps=1e-5, rope_theta=10000.0, sliding_window=3000, speaker_layers=2,
        speaker_heads=4, speaker_intermediate_size=52, speaker_norm_eps=4e-5, n_codebooks=4, codebook_rows=33,
    )
    return replace(config, **changes)


def nar_config() -> ResidualTransformerConfig:
    """Classes are no power of two and one."""
    return ResidualTransformerConfig(
        text_rows=31, n_classes=23, hidden_size=40, intermediate_size=56, encoder_layers=2, decoder_layers=3,
        num_attention_heads=4, timestep_size=18, speaker_layers=1, speaker_heads=5,
        speaker_intermediate_size=44, n_codebooks=5, n_output_codebooks=5, codebook_rows=23, norm_eps=4e-5,
        head_norm_eps=1e-5,
    )


TEXT_IDS = 256 + 10 + 1  # of the tokenizer in tests/tiny/metavoice.py


def first_stage_config(*, bias: bool = False) -> FirstStageConfig:
    return FirstStageConfig(
        hidden_size=36, intermediate_size=52, num_hidden_layers=3, num_attention_heads=3,
        max_position_embeddings=60, vocab_size=2049 + TEXT_IDS, speaker_embedding_size=10, norm_eps=1e-5,
        bias=bias,
    )


def second_stage_config(*, bias: bool = False) -> SecondStageConfig:
    return SecondStageConfig(
        hidden_size=28, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=40, vocab_sizes=(1025 + TEXT_IDS, 1025), target_vocab_sizes=(1025,) * 3,
        speaker_embedding_size=10, bias=bias,
    )


def qwen3_config(mode: str = "custom_voice", size: str | None = None) -> Qwen3Config:
    """Widths that groups of 32 fit.

    size: as published; by default `base` is small, 0b6: its predictor is as wide as the talker.
    """
    size = size or ("0b6" if mode == "base" else "1b7")
    stack = Qwen3StackConfig(64, 96, 3, 4, 2, 24, 1e6, 1e-6)
    voices = Speaker("vivian", 1050, None), Speaker("eric", 1051, "sichuan_dialect")
    return Qwen3Config(
        talker=stack, predictor=Qwen3StackConfig(64 if size == "0b6" else 32, 64, 2, 6, 3, 10, 1e4, 1e-5),
        vocab_size=1064, codebook_size=40, n_codebooks=5, text_vocab_size=271, text_hidden_size=50,
        max_positions=300, mode=mode, model_size=size, im_start_id=257, im_end_id=258, tts_pad_id=262,
        tts_bos_id=263, tts_eos_id=264, codec_pad_id=1040, codec_bos_id=1041, codec_eos_id=1042,
        codec_think_id=1043, codec_nothink_id=1044, codec_think_bos_id=1045, codec_think_eos_id=1046,
        languages=(("english", 1047), ("chinese", 1048), ("sichuan_dialect", 1049)),
        speakers=voices if mode == "custom_voice" else (),
        speaker_encoder=speaker_config(stack.hidden_size) if mode == "base" else None,
    )


def speaker_config(width: int = 14) -> SpeakerConfig:
    """Blocks of unlike kernels and dilations."""
    return SpeakerConfig(
        sample_rate=6000, mel_dim=9, enc_dim=width, enc_channels=(12, 12, 12, 24),
        enc_kernel_sizes=(5, 3, 5, 1), enc_dilations=(1, 2, 3, 1), enc_attention_channels=7,
        enc_res2net_scale=3, enc_se_channels=5,
    )


def codec_config() -> Qwen3CodecConfig:
    """Qwen3-TTS's codec: frames of 60 samples."""
    decoder = Qwen3DecoderConfig(
        codebook_size=40, codebook_dim=12, n_codebooks=5, latent_dim=20, hidden_size=14, intermediate_size=22,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6, sliding_window=5,
        rope_theta=10000.0, rms_norm_eps=1e-5, upsample_rates=(5, 3), upsampling_ratios=(2, 2),
        decoder_dim=24,
    )
    return Qwen3CodecConfig(replace(mimi_config(), sliding_window=LARGEST), decoder, n_unread=2)


def mbd_config() -> MbdConfig:
    """Two bands that share only the codec's width; the second's kernel is no multiple of its stride."""
    schedule = MbdScheduleConfig(
        beta_t0=1e-5, beta_t1=0.03, beta_exp=7.5, num_steps=120, clip=5.0, noise_scale=1.0
    )
    first = MbdUnetConfig(
        hidden=4, depth=3, res_blocks=2, norm_groups=4, kernel=8, stride=4, growth=2, max_channels=12,
        codec_dim=5,
    )
    second = MbdUnetConfig(
        hidden=6, depth=2, res_blocks=1, norm_groups=3, kernel=5, stride=3, growth=2.5, max_channels=100,
        codec_dim=5,
    )
    processor = MbdProcessorConfig(3, (0.4, 0.75, 1.0))
    bands = MbdBandConfig(first, schedule, None), MbdBandConfig(second, schedule, processor)
    return MbdConfig(sample_rate=2400, bands=bands)
# fmt: on


def normal(scale: float, mean: float = 0) -> Draw:
    return lambda random, shape: random.normal(mean, scale, shape)


def uniform(low: float, high: float) -> Draw:
    return lambda random, shape: random.uniform(low, high, shape)


def dense(gain: float = 1) -> Draw:
    """Sums over the last axis."""
    return lambda random, shape: random.normal(0, gain * shape[-1] ** -0.5, shape)


def convolution(gain: float = 1) -> Draw:
    return lambda random, shape: random.normal(0, gain * np.prod(shape[1:]) ** -0.5, shape)


def transposed(gain: float = 1, taps: int = 2) -> Draw:
    """Convolutions whose inputs are axis 0; `taps` of them reach an output."""
    return lambda random, shape: random.normal(0, gain * (taps * shape[0]) ** -0.5, shape)


def scaled(draw: Draw, factor: float) -> Draw:
    return lambda random, shape: draw(random, shape) * factor


def single(draw: Draw) -> Draw:
    return lambda random, shape: draw(random, shape).astype(np.float32)


def in_layers(path: str, layers: Any) -> str:
    """Match the tensors of some of a list's layers."""
    return rf"^{path}\.({'|'.join(map(str, layers))})\."


def _last(config: Qwen3CodecConfig) -> int:
    return len(config.decoder.upsample_rates) + 2


NORM, MARS5_NORM = uniform(0.5, 1.5), r"norm\d?\.weight$|^residual_decoder\.\d+\.0\.weight$"
EMBED, BIAS = (r"\.embed$", normal(0.7)), (r"\.bias", normal(0.1))
METAVOICE: Rules = (
    *((r"\.ln_", NORM), (r"\.bias$", normal(0.3))),
    *((r"\.wte|\.wpe\.", normal(0.6)), ("", dense(1.5))),
)
QWEN3: Rules = (
    (r"\.(bias|alpha|beta)$", normal(0.1)),
    (r"norm\w*\.weight$|\.(gamma|scale)$", NORM),
    ("embed", normal(0.7)),
)
# kind → regular expressions of names and their draws, of which the first that is found in a name counts
RULES: Mapping[str, Callable[[Any], Rules]] = {
    "dia": lambda config: (
        *((r"norm\.weight$", NORM), ("embed", normal(0.6))),
        *(("^logits_dense", scaled(dense(), 3)), ("", dense())),
    ),
    "dac": lambda config: (
        *((r"\.alpha$", uniform(0.3, 2.0)), (r"\.bias$", normal(0.1)), (r"\.codebook\.", normal(1))),
        (r"^decoder\.conv2\.weight", scaled(convolution(), 0.03)),  # far from tanh's ends
        *((r"\.conv_t1\.", transposed()), ("", convolution())),
    ),
    "encodec": lambda config: (
        *(BIAS, EMBED),
        (in_layers("decoder.layers", encodec.transposed_layers(config)), transposed(1.4)),
        ("", convolution(1.4)),
    ),
    "vocos": lambda config: (
        *((r"\.bias|\.shift\.", normal(0.1)), (r"gamma$|\.scale\.|layer_norm", NORM)),
        *(("codebook", normal(0.7)), (r"^head\.out\.weight", scaled(convolution(), 2)), ("", convolution())),
    ),
    "mimi": lambda config: (
        *((r"\.bias$", normal(0.1)), (r"\.scale$|layernorm", NORM), EMBED),
        ("^upsample", normal(1.4 * 2**-0.5)),
        (in_layers("decoder.layers", mimi.transposed_layers(config)), transposed(1.4)),
        ("", convolution(1.4)),
    ),
    "dia2": lambda config: (
        *((r"norm\.weight$", NORM), (r"embed(?!.*_proj)", normal(0.7))),
        *((r"head|\.logits\.", dense(2.5)), ("", dense())),
    ),
    "mars5": lambda config: (
        *((MARS5_NORM, NORM), (r"alpha$", normal(0.2, 0.7)), (r"bias$", normal(0.2))),
        *(("emb", normal(0.7)), (r"^ar\.output", scaled(dense(), 2)), ("", dense())),
    ),
    "mars5_nar": lambda config: (
        *((MARS5_NORM, NORM), (r"(bias|alpha)$", normal(0.3, 0.4))),
        *((r"^(?!.*timestep).*emb", normal(0.6)), ("", dense())),
    ),
    "metavoice": lambda config: METAVOICE,
    "metavoice_second_stage": lambda config: METAVOICE,
    "qwen3": lambda config: (*QWEN3, ("head", scaled(single(convolution()), 2.5)), ("", convolution())),
    "qwen3_codec": lambda config: (
        *QWEN3,
        (r"^decoder\.(upsample\.\d+\.0|decoder\.\d+\.block\.1)\.", transposed(taps=1)),
        # the last convolution, so that few samples are clipped
        (rf"^decoder\.decoder\.{_last(config)}\.conv\.weight", scaled(single(convolution()), 0.01)),
        ("", convolution()),
    ),
    "mbd": lambda config: (
        *((r"\.norm.*weight$", NORM), (r"\.counts$", lambda random, shape: np.full(shape, 9.0))),
        (r"sum_x2$|sum_target_x2$", uniform(5, 20)),
        *((r"\.processor\.|\.bias$|\.embedding", normal(0.3)), ("", convolution())),
    ),
}  # fmt: skip
CONFIGS: Mapping[str, Callable[[], Any]] = {
    **{"dia": dia_config, "dac": dac_config, "encodec": encodec_config, "vocos": vocos_config},
    **{"mimi": mimi_config, "dia2": dia2_config, "mars5": ar_config, "mars5_nar": nar_config},
    **{"metavoice": first_stage_config, "metavoice_second_stage": second_stage_config},
    **{"qwen3": qwen3_config, "qwen3_codec": codec_config, "mbd": mbd_config},
}
KINDS = {type(make()): kind for kind, make in CONFIGS.items()}


def tiny(what: Any, seed: int = 0, *, eos: float = 1.0) -> Weights[Any]:
    """Draw random weights of a small network.

    what: its kind, or another configuration.  eos: factor on the logits of Dia's channel 0 that end speech.
    """
    config = CONFIGS[what]() if isinstance(what, str) else what
    kind, random = KINDS[type(config)], np.random.default_rng(seed)
    rules, tensors = RULES[kind](config), dict[str, np.ndarray]()
    for name, shape in models.network(kind).parameter_shapes(config).items():
        draw = next(draw for pattern, draw in rules if re.search(pattern, name))
        tensors[name] = draw(random, shape)
    if kind == "dia":
        tensors["logits_dense.weight"][config.eos_token_id] *= eos
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})
