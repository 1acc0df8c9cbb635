"""Engines of Dia2 with random weights, at the published sizes or tiny, for benchmarks."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.lib.random_networks import PACKAGES, gpu, network, title, usual
from tts_core.codecs.mimi import MIMI_24KHZ, MimiConfig
from tts_core.dia2.config import GATED, Dia2Config, Dia2StackConfig
from tts_core.dia2.model import DIA2_1B, DIA2_2B
from tts_core.models import MODELS

TINY = replace(
    DIA2_2B,
    transformer=Dia2StackConfig(2, 64, 96, 4, 2, 16, GATED),
    depformer=Dia2StackConfig(1, 32, 64, 2, 2, 16, GATED),
    low_rank_dim=64,
    text_vocab_size=400,
)
TINY_CODEC = replace(MIMI_24KHZ, hidden_size=32, num_filters=2, intermediate_size=32, num_hidden_layers=1)
SIZES = {"2b": DIA2_2B, "1b": DIA2_1B, "tiny": TINY}


def codec_of(config: Dia2Config) -> MimiConfig:
    """Choose the codec's size."""
    return TINY_CODEC if config is TINY else MIMI_24KHZ


def engine(side: str, config: Dia2Config, dtype: str, *, device: str | None = None) -> tuple[Any, str]:
    """Build a side's engine and its title. device: of PyTorch; None takes CUDA if there is one."""
    package, device = PACKAGES[side], device or ("cpu" if side == "mlx" else gpu())
    codec_class = import_module(f"{package}.codecs.mimi").Mimi
    compose = import_module(f"{package}.dia2.pipeline").compose
    built = network(side, "dia2", config, dtype, device=device, law=_law)
    if side == "mlx":
        codec = network(side, "mimi", codec_of(config), "float32")  # its constructor's would be silent
    else:
        import torch

        with torch.device(device):
            codec = codec_class(codec_of(config)).to(device).eval().requires_grad_(False)
    forms = {} if side == "mlx" else import_module(f"{package}.loading").Parts.fastest("dia2", codec)
    made = compose({"dia2": built, "mimi": codec}, MODELS["dia2"].speed.documents({}), **forms)
    return made.engine, title(side, device)


def _law(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    return (0, shape[-1] ** -0.5) if "embed" in name and "_proj" in name else usual(name, shape)
