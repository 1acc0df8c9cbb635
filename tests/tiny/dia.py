"""Networks of the real structure, small enough to run hundreds of times; random NumPy weights from a seed.

Nothing divides evenly here: query heads differ from key heads, widths from heads x head width, the encoder
from the decoder, the delays are in no order and two channels share the longest, the strides are odd.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.sides import Side
from tests.tiny.weights import Weights
from tts_core.codecs import dac
from tts_core.codecs.dac import DacConfig
from tts_core.dia import shapes as dia_shapes
from tts_core.dia.config import DiaConfig, DiaDecoderConfig, DiaEncoderConfig
from tts_core.dia.options import DiaSampling

CODES, EOS, PAD, BOS = 60, 60, 61, 62
SAMPLING = DiaSampling(cfg_scale=3.0, temperature=1.2, top_p=0.9, top_k=20)


def dia_config(*, cross_rope: bool = False, positions: int = 2400, text_positions: int = 90) -> DiaConfig:
    """positions, text_positions: the longest grid in rows and text in bytes."""
    encoder = DiaEncoderConfig(
        hidden_size=40,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=12,
        max_position_embeddings=text_positions,
        vocab_size=256,
        norm_eps=1e-5,
        rope_theta=10000.0,
    )
    decoder = DiaDecoderConfig(
        hidden_size=44,
        intermediate_size=72,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        cross_hidden_size=40,
        cross_num_attention_heads=4,
        cross_num_key_value_heads=2,
        cross_head_dim=14,
        max_position_embeddings=positions,
        vocab_size=67,
        num_channels=4,
        norm_eps=1e-5,
        rope_theta=10000.0,
    )
    return DiaConfig(
        encoder_config=encoder,
        decoder_config=decoder,
        delay_pattern=(0, 3, 1, 3),
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        cross_rope=cross_rope,
        sampling=SAMPLING,
    )


def dac_config() -> DacConfig:
    return DacConfig(
        sample_rate=1000,
        encoder_hidden_size=4,
        downsampling_ratios=(2, 3, 5),
        hidden_size=20,
        decoder_hidden_size=32,
        upsampling_ratios=(5, 3, 2),
        n_codebooks=4,
        codebook_size=CODES,
        codebook_dim=(3, 4, 5, 3),
    )


def dia_weights(config: DiaConfig, seed: int = 0, *, eos: float = 1.0) -> Weights[DiaConfig]:
    """eos: factor on channel 0's EOS logits."""
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in dia_shapes.parameter_shapes(config).items():
        if dia_shapes.is_norm(name):
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif "embed" in name:
            tensors[name] = random.normal(0, 0.6, shape)
        else:
            tensors[name] = random.normal(0, shape[-1] ** -0.5, shape)
    tensors["logits_dense.weight"] *= 3
    tensors["logits_dense.weight"][config.eos_token_id] *= eos
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def dac_weights(config: DacConfig, seed: int = 0) -> Weights[DacConfig]:
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in dac.parameter_shapes(config).items():
        if name.endswith(".alpha"):
            tensors[name] = random.uniform(0.3, 2.0, shape)
        elif name.endswith(".bias"):
            tensors[name] = random.normal(0, 0.1, shape)
        elif ".codebook." in name:
            tensors[name] = random.normal(0, 1, shape)
        else:  # a transposed convolution: inputs are axis 0, and two taps reach an output
            fan_in = 2 * shape[0] if ".conv_t1." in name else shape[1] * shape[2]
            tensors[name] = random.normal(0, fan_in**-0.5, shape)
    tensors["decoder.conv2.weight"] *= 0.03  # far from tanh's ends
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})


def write_published(folder: Path, dia: Weights[DiaConfig], dac: Weights[DacConfig]) -> Path:
    """The pair in the published transformers layout, the codec in a subfolder. Returns the folder."""
    config = {name: getattr(dia.config, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    config |= {"delay_pattern": dia.config.delay_pattern, "model_type": "dia"}
    config |= {name: asdict(getattr(dia.config, name)) for name in ("encoder_config", "decoder_config")}
    sampling = asdict(dia.config.sampling)
    sampling["guidance_scale"] = sampling.pop("cfg_scale")
    codec = asdict(dac.config) | {"model_type": "dac", "sampling_rate": dac.config.sample_rate}
    del codec["sample_rate"]
    codec["codebook_dim"] = dac.config.codebook_dim[0]
    files = {"config.json": config, "generation_config.json": sampling, "codec/config.json": codec}
    (folder / "codec").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    save_file(dia.tensors, folder / "model.safetensors")
    save_file(dac.tensors, folder / "codec/model.safetensors")
    return folder


def published_dac_config() -> DacConfig:
    """The tiny codec as the transformers layout can state it: one width for all codebooks."""
    return replace(dac_config(), codebook_dim=(4,) * 4)


def compose(side: Side, dia: Weights[DiaConfig], dac: Weights[DacConfig]) -> Any:
    """Dia's pipeline on a side."""
    codec = side.network("dac", dac)
    return side.module("dia.pipeline").compose(side.network("dia", dia), codec, **side.fastest("dia", codec))
