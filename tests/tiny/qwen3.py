"""Qwen3-TTS of the real structure, small: random weights from a seed, and folders as they are published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from benchmarks.lib.checkpoints import write_qwen3_texts
from tests.tiny.mimi import mimi_config
from tests.tiny.weights import Weights
from tts_core.codecs import qwen3_codec
from tts_core.codecs.qwen3_codec import Qwen3CodecConfig, Qwen3DecoderConfig
from tts_core.config import LARGEST
from tts_core.qwen3.config import Qwen3Config, Qwen3StackConfig, Speaker, parameter_shapes
from tts_core.qwen3.speaker import SpeakerConfig

CODEBOOKS, CODES = 5, 40
LAST = 0.01  # of the last convolution, so that few samples are clipped
HALVES = {"semantic": "first", "acoustic": "rest"}


def qwen3_config(mode: str = "custom_voice", size: str | None = None) -> Qwen3Config:
    """Grouped heads that are not as wide as the network, and widths that groups of 32 fit.

    size: as published; by default `base` is small, 0b6: its predictor is as wide as the talker.
    """
    size = size or ("0b6" if mode == "base" else "1b7")
    is_base, stack = mode == "base", Qwen3StackConfig(64, 96, 3, 4, 2, 24, 1e6, 1e-6)
    voices = Speaker("vivian", 1050, None), Speaker("eric", 1051, "sichuan_dialect")
    return Qwen3Config(
        talker=stack,
        predictor=Qwen3StackConfig(64 if size == "0b6" else 32, 64, 2, 6, 3, 10, 1e4, 1e-5),
        vocab_size=1024 + CODES,
        codebook_size=CODES,
        n_codebooks=CODEBOOKS,
        text_vocab_size=271,
        text_hidden_size=50,
        max_positions=300,
        mode=mode,
        model_size=size,
        im_start_id=257,
        im_end_id=258,
        tts_pad_id=262,
        tts_bos_id=263,
        tts_eos_id=264,
        codec_pad_id=1040,
        codec_bos_id=1041,
        codec_eos_id=1042,
        codec_think_id=1043,
        codec_nothink_id=1044,
        codec_think_bos_id=1045,
        codec_think_eos_id=1046,
        languages=(("english", 1047), ("chinese", 1048), ("sichuan_dialect", 1049)),
        speakers=voices if mode == "custom_voice" else (),
        speaker_encoder=speaker_config(stack.hidden_size) if is_base else None,
    )


def speaker_config(width: int = 14) -> SpeakerConfig:
    """Blocks of unlike kernels and dilations."""
    return SpeakerConfig(
        sample_rate=6000,
        mel_dim=9,
        enc_dim=width,
        enc_channels=(12, 12, 12, 24),
        enc_kernel_sizes=(5, 3, 5, 1),
        enc_dilations=(1, 2, 3, 1),
        enc_attention_channels=7,
        enc_res2net_scale=3,
        enc_se_channels=5,
    )


def codec_config() -> Qwen3CodecConfig:
    """Frames of 60 samples; windows of a few frames, heads that are not as wide as the network."""
    encoder = replace(mimi_config(), n_codebooks=CODEBOOKS, codebook_size=CODES, sliding_window=LARGEST)
    decoder = Qwen3DecoderConfig(
        codebook_size=CODES,
        codebook_dim=12,
        n_codebooks=CODEBOOKS,
        latent_dim=20,
        hidden_size=14,
        intermediate_size=22,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        sliding_window=5,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        upsample_rates=(5, 3),
        upsampling_ratios=(2, 2),
        decoder_dim=24,
    )
    return Qwen3CodecConfig(encoder, decoder, n_unread=2)


def qwen3_weights(config: Qwen3Config, seed: int = 0) -> Weights[Qwen3Config]:
    """Logits are a few units wide."""
    random, tensors = np.random.default_rng(seed), {}
    for name, shape in parameter_shapes(config).items():
        tensors[name] = _drawn(random, name, shape) * (2.5 if "head" in name else 1)
    return Weights(config, tensors)


def codec_weights(config: Qwen3CodecConfig, seed: int = 0) -> Weights[Qwen3CodecConfig]:
    random, tensors = np.random.default_rng(seed), {}
    turned = [f"decoder.upsample.{i}.0." for i in range(len(config.decoder.upsampling_ratios))]
    turned += [f"decoder.decoder.{i + 1}.block.1." for i in range(len(config.decoder.upsample_rates))]
    for name, shape in qwen3_codec.parameter_shapes(config).items():
        # a transposed convolution: inputs are axis 0
        inputs = shape[0] if name.startswith(tuple(turned)) else None
        tensors[name] = _drawn(random, name, shape, inputs)
    tensors[f"decoder.decoder.{len(config.decoder.upsample_rates) + 2}.conv.weight"] *= LAST
    return Weights(config, tensors)


def _drawn(
    random: np.random.Generator, name: str, shape: tuple[int, ...], inputs: int | None = None
) -> np.ndarray:
    if name.endswith((".bias", ".alpha", ".beta")):
        drawn = random.normal(0, 0.1, shape)
    elif len(shape) == 1:
        drawn = random.uniform(0.5, 1.5, shape)
    elif "embed" in name:
        drawn = random.normal(0, 0.7, shape)
    else:
        drawn = random.normal(0, (inputs or int(np.prod(shape[1:]))) ** -0.5, shape)
    return drawn.astype(np.float32)


def write_published(
    folder: Path,
    mode: str = "custom_voice",
    seed: int = 0,
    *,
    eos: float = 1.0,
    size: str | None = None,
) -> Path:
    """Write a folder as it is published, all tensors in float32. eos: size of the logit that ends speech."""
    config, codec = qwen3_config(mode, size), codec_config()
    weights = qwen3_weights(config, seed)
    weights.tensors["talker.codec_head.weight"][config.codec_eos_id] *= eos
    write_qwen3_texts(folder, config, codec)
    save_file(weights.tensors, folder / "model.safetensors")
    save_file(published_codec(codec_weights(codec, seed)), folder / "speech_tokenizer/model.safetensors")
    return folder


def published_codec(weights: Weights[Qwen3CodecConfig]) -> dict[str, np.ndarray]:
    """Rename the codec's tensors; entries of a codebook are sums, and how many they are of."""
    random, config, made = np.random.default_rng(9), weights.config, dict[str, np.ndarray]()
    books = list[str]()
    for name, tensor in weights.tensors.items():
        if name.startswith("decoder.quantizer."):
            for half, theirs in HALVES.items():
                name = name.replace(f"{half}_residual_vector_quantizer", f"rvq_{theirs}")
            name = name.replace(".layers.", ".vq.layers.").replace(".codebook.", "._codebook.")
        if not name.endswith(".embed"):
            made[name] = tensor
            continue
        uses = random.integers(1, 9, len(tensor)).astype(np.float32)
        total = "embedding_sum" if "_codebook" in name else "embed_sum"
        at = name.removesuffix(".embed")
        made[f"{at}.{total}"], made[f"{at}.cluster_usage"] = tensor * uses[:, None], uses
        if total == "embed_sum":
            made[f"{at}.initialized"] = np.ones(1, np.float32)
            books.append(at)
    last, _, count = books[-1].removesuffix(".codebook").rpartition(".")
    for unread in range(config.n_unread):
        for part in ("embed_sum", "cluster_usage", "initialized"):
            made[f"{last}.{int(count) + 1 + unread}.codebook.{part}"] = made[f"{books[-1]}.{part}"]
    return made
