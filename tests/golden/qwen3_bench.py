"""Qwen3-TTS's networks on both sides, NumPy in and out: published files through our maps, planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.readers import SafetensorsCheckpoint
from converters.maps import qwen3 as model_map
from converters.maps import qwen3_codec as codec_map
from converters.rules.plan import Drop, Rule, plan
from tests.golden.bench import Bench
from tests.golden.cases import existing
from tests.golden.codec_bench import CodecSide
from tests.sides import Side
from tts_core import models
from tts_core.codecs import qwen3_codec
from tts_core.files.json_object import read_json
from tts_core.models import Network
from tts_core.qwen3 import config as model
from tts_core.qwen3.tokenizer import FILES, Tokenizer


def codec_bench(side: str, folder: Path) -> Bench[CodecSide]:
    """From a `speech_tokenizer` folder."""
    folder = existing(folder).resolve()
    return Bench.load(side, lambda kind: _codec(kind, folder))


@cache
def _codec(kind: str, folder: Path) -> CodecSide:
    config = qwen3_codec.read_published(read_json(folder / "config.json"))
    tensors = planned(folder / "model.safetensors", codec_map.rules(config), qwen3_codec.NETWORK, config)
    return CodecSide(kind, build(Side(kind), qwen3_codec.NETWORK, config, tensors))


def planned(file: Path, rules: list[Rule | Drop], network: Network, config: Any) -> dict[str, np.ndarray]:
    """Claim every tensor of the file and fill every tensor of the network."""
    checkpoint = SafetensorsCheckpoint([file])
    moves = plan(rules, checkpoint.shapes, network.parameter_shapes(config))
    return {move.target: move.how.apply(*map(checkpoint.read, move.sources)) for move in moves}


def build(side: Side, network: Network, config: Any, tensors: Mapping[str, np.ndarray]) -> Any:
    """Create a network with these tensors, (canonical names, PyTorch's axis order), in the side's dtype."""
    module, _, name = network.network.partition(":")
    made = getattr(import_module(f"{side.package}.{module}"), name)(config)

    def ordered(name: str, value: np.ndarray) -> np.ndarray:
        axes = network.mlx_axes(config, name, value.ndim) if side.kind == "mlx" else None
        return value if axes is None else value.transpose(axes)

    own = {name: side.array(ordered(name, value)) for name, value in tensors.items()}
    if side.kind == "mlx":
        made.load_weights(list(own.items()), strict=True)
        made.eval()
        return made
    made.load_state_dict(own, strict=True, assign=True)
    return made.eval()


@dataclass(frozen=True)
class ModelSide(Side):
    """A side with a Qwen3-TTS network."""

    network: Any


def model_bench(side: str, folder: Path) -> Bench[ModelSide]:
    """From a published folder."""
    folder = existing(folder).resolve()
    return Bench.load(side, lambda kind: _model(kind, folder))


@cache
def _model(kind: str, folder: Path) -> ModelSide:
    config = model.read_published(read_json(folder / "config.json"))
    tensors = planned(folder / "model.safetensors", model_map.rules(config), models.network("qwen3"), config)
    return ModelSide(kind, build(Side(kind), models.network("qwen3"), config, tensors))


@cache
def tokenizer(folder: Path, most: int) -> Tokenizer:
    """The tokenizer of a folder."""
    return Tokenizer(*(existing(folder / name).read_text() for name in FILES), most=most)
