"""Qwen3-TTS's networks on both sides, NumPy in and out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden import bench
from tests.golden.bench import Bench
from tests.golden.cases import existing
from tests.sides import Side
from tts_core.qwen3.tokenizer import FILES, Qwen3Tokenizer


@dataclass(frozen=True)
class ModelSide(Side):
    """A side with a Qwen3-TTS network."""

    network: Any  # pyright: ignore[reportIncompatibleMethodOverride]


def model_bench(side: str, folder: Path) -> Bench[ModelSide]:
    """From a published folder."""
    file = folder / "model.safetensors"
    return Bench.load(side, lambda kind: ModelSide(kind, bench.network(kind, "qwen3", file)))


@cache
def tokenizer(folder: Path, most: int) -> Qwen3Tokenizer:
    """The tokenizer of a folder."""
    return Qwen3Tokenizer(*(existing(folder / name).read_text() for name in FILES), most=most)
