"""Qwen3-TTS's networks on both sides, NumPy in and out: published files through our maps, planned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from converters.published import open_published
from tests.golden.bench import Bench
from tests.golden.cases import existing
from tests.golden.codec_bench import CodecSide
from tests.sides import Side
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer


def codec_bench(side: str, folder: Path) -> Bench[CodecSide]:
    """From a `speech_tokenizer` folder."""
    folder = existing(folder).resolve()
    return Bench.load(side, lambda kind: _codec(kind, folder))


@cache
def _codec(kind: str, folder: Path) -> CodecSide:
    return CodecSide(kind, _network(kind, "qwen3_codec", folder))


@dataclass(frozen=True)
class ModelSide(Side):
    """A side with a Qwen3-TTS network."""

    network: Any  # pyright: ignore[reportIncompatibleMethodOverride]


def model_bench(side: str, folder: Path) -> Bench[ModelSide]:
    """From a published folder."""
    folder = existing(folder).resolve()
    return Bench.load(side, lambda kind: _model(kind, folder))


@cache
def _model(kind: str, folder: Path) -> ModelSide:
    return ModelSide(kind, _network(kind, "qwen3", folder))


def _network(side: str, kind: str, folder: Path) -> Any:
    """Claim every tensor of the file and fill every tensor of the network."""
    published = open_published(folder / "model.safetensors", parts=[kind], offline=True)
    return Side(side).network(kind, published.parts[kind])


@cache
def tokenizer(folder: Path, most: int) -> Qwen3Tokenizer:
    """The tokenizer of a folder."""
    return Qwen3Tokenizer(*(existing(folder / name).read_text() for name in FILES), most=most)
