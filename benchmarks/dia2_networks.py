"""Engines of Dia2 with random weights, at the published sizes or tiny, for benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module, metadata
from typing import Any

from tts_core.codecs.mimi import MIMI_24KHZ, MimiConfig
from tts_core.dia2.config import GATED, Dia2Config, StackConfig
from tts_core.dia2.shapes import is_norm, parameter_shapes
from tts_core.dia2.spec import DIA2_1B, DIA2_2B
from tts_core.dia2.speed import SPEED
from tts_core.dia2.tokenizer import FILE

TINY = replace(
    DIA2_2B,
    transformer=StackConfig(2, 64, 96, 4, 2, 16, GATED),
    depformer=StackConfig(1, 32, 64, 2, 2, 16, GATED),
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
    package = "mlx_port" if side == "mlx" else "torch_ref"
    network_class = import_module(f"{package}.dia2.dia2").Dia2
    codec_class = import_module(f"{package}.codecs.mimi").Mimi
    compose = import_module(f"{package}.dia2.pipeline").compose
    tokenizer = SPEED.documents({})["dia2"][FILE]
    if side == "mlx":
        import mlx.core as mx

        mx.random.seed(0)
        network: Any = network_class(config)
        for name, value in _tensors(config, mx.random.normal):
            kind = mx.float32 if is_norm(name) else getattr(mx, dtype)
            network.load_weights([(name, value.astype(kind))], strict=False)
            mx.eval(network.parameters())
        built = compose(network, codec_class(codec_of(config)), tokenizer).engine
        mx.clear_cache()
        return built, f"mlx_port {metadata.version('mlx')} {mx.default_device()}"
    import torch

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    with torch.device("meta"):
        network = network_class(config)
    state = {
        name: value.to(torch.float32 if is_norm(name) else getattr(torch, dtype))
        for name, value in _tensors(config, lambda shape: torch.randn(shape, device=device))
    }
    network.load_state_dict(state, assign=True)
    with torch.device(device):
        codec = codec_class(codec_of(config))
    parts = (each.to(device).eval().requires_grad_(False) for each in (network, codec))
    where = torch.cuda.get_device_name() if device == "cuda" else device
    return compose(*parts, tokenizer).engine, f"torch_ref {torch.__version__} {where}"


def _tensors(config: Dia2Config, normal: Any) -> Iterator[tuple[str, Any]]:
    """Draw weights that keep activations at the size of trained ones."""
    for name, shape in parameter_shapes(config).items():
        if len(shape) == 1:
            yield name, normal(shape) * 0.1 + 1
        else:
            yield (
                name,
                normal(shape) * (0.5 if "embed" in name and "_proj" not in name else shape[-1] ** -0.5),
            )
