"""Networks of Qwen3-TTS with random weights, at the published sizes or tiny, for benchmarks."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.lib import random_networks
from tts_core.codecs.qwen3_codec import QWEN3_CODEC_12HZ
from tts_core.qwen3.config import Qwen3Config, Qwen3StackConfig
from tts_core.qwen3.model import qwen3

CONFIGS = {"0.6b": qwen3("0b6", "base"), "1.7b": qwen3("1b7", "base")}
CONFIGS["tiny"] = replace(
    CONFIGS["0.6b"],
    talker=Qwen3StackConfig(1024, 96, 2, 4, 2, 16, 1e6, 1e-6),
    predictor=Qwen3StackConfig(64, 96, 1, 4, 2, 16, 1e6, 1e-6),
    text_hidden_size=64,
)


def networks(side: str, config: Qwen3Config, dtype: str, device: str) -> tuple[Any, Any]:
    """Build the model and its codec on a side; the codec's weights are those of its constructor."""
    network = random_networks.network(side, "qwen3", config, dtype, device=device)
    codec = import_module(f"{random_networks.PACKAGES[side]}.codecs.qwen3_codec").Qwen3Codec
    if side == "mlx":
        import mlx.core as mx

        made = codec(QWEN3_CODEC_12HZ)
        mx.eval(made.parameters())
        mx.clear_cache()
        return network, made
    import torch

    with torch.device(device):
        made = codec(QWEN3_CODEC_12HZ)
    return network, made.to(device).eval().requires_grad_(False)


def array(side: str, device: str, values: np.ndarray) -> Any:
    """A side's array on its device."""
    if side == "mlx":
        return import_module("mlx.core").array(values)
    return import_module("torch").from_numpy(values).to(device)


def inference(side: str) -> Any:
    """The context in which networks run."""
    return nullcontext() if side == "mlx" else import_module("torch").inference_mode()
