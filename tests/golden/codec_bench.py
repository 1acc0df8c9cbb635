"""Codecs on both sides, NumPy in and out: published files through our maps, planned strictly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from converters.files.pickles import PICKLES, TorchCheckpoint
from converters.files.readers import SafetensorsCheckpoint
from converters.maps.table import layouts
from converters.rules.plan import Drop, Rule, plan
from tests.golden.bench import Bench
from tests.golden.cases import existing
from tests.golden.exact import exact_transform
from tests.sides import Side
from tests.tiny.weights import Weights
from tts_core.codecs import encodec, mimi, mimi_published, vocos
from tts_core.files.json_object import read_json


@dataclass(frozen=True)
class CodecSide(Side):
    """A side with a codec: DAC, EnCodec, Mimi or Vocos."""

    codec: Any

    def conv(self, module: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
        """Run a part of the codec. (B, C, T) → (B, C, T) in either framework."""
        return self.from_channels(module(self.channels(x)))

    def latents(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, C, T)."""
        return self.from_channels(self.codec.quantizer.decode(self.array(codes)))

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """(B, L) → (B, Q, T)."""
        return self.numpy(self.codec.encode(samples))

    def decode(self, codes: np.ndarray) -> np.ndarray:
        """(B, q, T) → (B, L)."""
        return self.numpy(self.codec.decode(codes))


def encodec_bench(side: str, file: Path, config: Path | None) -> Bench[CodecSide]:
    """config: of the transformers layout; None takes the sizes from the tensors of a .th file."""
    file, config = existing(file).resolve(), config and existing(config).resolve()
    return Bench.load(side, lambda kind: _published(kind, "encodec", file, config))


def vocos_bench(side: str, folder: Path) -> Bench[CodecSide]:
    """From a folder with config.yaml and pytorch_model.bin."""
    file, config = (existing(folder / name).resolve() for name in ("pytorch_model.bin", "config.yaml"))
    return Bench.load(side, lambda kind: _published(kind, "vocos", file, config))


def mimi_bench(side: str, file: Path, config: Path, layout: str) -> Bench[CodecSide]:
    """layout: the name of one of Mimi's published layouts."""
    file, config = existing(file).resolve(), existing(config).resolve()
    return Bench.load(side, lambda kind: _mimi(kind, file, config, layout))


def bench_of(side: str, model: str, weights: Weights) -> Bench[CodecSide]:
    """From weights in memory."""
    return Bench.load(side, lambda kind: _codec_side(kind, model, weights))


@cache
def _published(kind: str, model: str, file: Path, config: Path | None) -> CodecSide:
    return _codec_side(
        kind, model, _encodec(file, config) if model == "encodec" else _vocos(file, config or file)
    )


@cache
def _mimi(kind: str, file: Path, config: Path, layout: str) -> CodecSide:
    sizes = mimi_published.read_transformers(read_json(config))
    rules, shapes = layouts()[layout].rules(sizes), mimi.parameter_shapes(sizes)
    return _codec_side(kind, "mimi", planned(_open(file), rules, sizes, shapes))


def _codec_side(kind: str, model: str, weights: Weights) -> CodecSide:
    network = Side(kind).network(model, weights)
    if kind == "float64" and model == "vocos":
        exact_transform(network.head.istft)
    return CodecSide(kind, network)


def _encodec(file: Path, config: Path | None) -> Weights:
    checkpoint = _open(file)
    stated = encodec.read_transformers(read_json(config)) if config else None
    rate = stated.sample_rate if stated else encodec.SAMPLE_RATE
    sizes = encodec.from_shapes(checkpoint.shapes, sample_rate=rate)
    assert stated in (None, sizes), f"{config}: not of {file}"
    layout = layouts()["encodec_transformers" if config else "encodec_facebook"]
    return planned(checkpoint, layout.rules(sizes), sizes, encodec.parameter_shapes(sizes))


def _vocos(file: Path, config: Path) -> Weights:
    checkpoint = _open(file)
    sizes = vocos.read_published(vocos.read_yaml(config.read_text()), checkpoint.shapes)
    return planned(checkpoint, layouts()["vocos_charactr"].rules(sizes), sizes, vocos.parameter_shapes(sizes))


def _open(file: Path) -> Any:
    pickled = file.suffix in (*PICKLES, ".th")
    return TorchCheckpoint(file) if pickled else SafetensorsCheckpoint([file])


def planned(checkpoint: Any, rules: Sequence[Rule | Drop], config: Any, shapes: dict[str, Any]) -> Weights:
    """Claim every tensor of the file and fill every tensor of the network."""
    moves = plan(rules, checkpoint.shapes, shapes)
    made = {move.target: move.how.apply(*map(checkpoint.read, move.sources)) for move in moves}
    return Weights(config, made)
