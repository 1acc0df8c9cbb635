"""The order in which a network's layers run and what flows between them, so that one can run at a time.

A stage takes what it needs from a state, arrays by name, and gives what it makes. The names of Dia's state:
ids (1, S) and zero (1, 1), text and nothing (1, ·, source width), tokens (R, T, C), rows (R, T, D), keys and
values (1, H, S, E), logits (R, T, C, V). Of the codec's: samples (B, L), hidden and latents (B, C, T),
encodings (B, E, T), codes (B, Q, T), audio (B, L).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tts_core.dac import DacConfig
from tts_core.dia import DiaConfig

State = dict[str, np.ndarray]
Kind = Literal[
    "text_embedding",
    "encoder_layer",
    "encoder_norm",
    "row_embedding",
    "decoder_layer",
    "decoder_norm",
    "head",
    "encoder_input",
    "encoder_block",
    "encoder_output",
    "quantizer",
    "dequantizer",
    "decoder_input",
    "decoder_block",
    "decoder_output",
]


@dataclass(frozen=True)
class Stage:
    """One layer of a network. kind: the method that runs it; modules: the canonical names of its parts."""

    name: str
    kind: Kind
    modules: tuple[str, ...]
    index: int = 0

    def tensors(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that belong to this stage."""
        heads = tuple(f"{module}." for module in self.modules)
        return [name for name in names if name.startswith(heads)]


def dia_stages(config: DiaConfig) -> list[Stage]:
    """From text ids and grid rows to logits."""
    encoder, decoder = config.encoder_config, config.decoder_config
    return [
        _stage("text_embedding", "model.encoder.embedding"),
        *_layers("encoder_layer", "model.encoder.layers", encoder.num_hidden_layers),
        _stage("encoder_norm", "model.encoder.norm"),
        _stage("row_embedding", "model.decoder.embeddings"),
        *_layers("decoder_layer", "model.decoder.layers", decoder.num_hidden_layers),
        _stage("decoder_norm", "model.decoder.norm"),
        _stage("head", "logits_dense"),
    ]


def encode_stages(config: DacConfig) -> list[Stage]:
    """The codec from samples to codes. A quantizer leaves in `latents` what the next one has to describe."""
    return [
        _stage("encoder_input", "encoder.conv1"),
        *_layers("encoder_block", "encoder.block", len(config.downsampling_ratios)),
        Stage("encoder.conv2", "encoder_output", ("encoder.snake1", "encoder.conv2")),
        *_layers("quantizer", "quantizer.quantizers", config.n_codebooks),
    ]


def decode_stages(config: DacConfig) -> list[Stage]:
    """The codec from codes to audio."""
    return [
        _stage("dequantizer", "quantizer"),
        _stage("decoder_input", "decoder.conv1"),
        *_layers("decoder_block", "decoder.block", len(config.upsampling_ratios)),
        Stage("decoder.conv2", "decoder_output", ("decoder.snake1", "decoder.conv2")),
    ]


def passes(rows: int) -> list[tuple[int, int]]:
    """The calls in which a decoder layer reads its rows: half at once, then two together, then each alone."""
    first = max(1, rows // 2)
    second = min(rows, first + 2)
    spans = [(0, first), (first, second), *((row, row + 1) for row in range(second, rows))]
    return [span for span in spans if span[0] < span[1]]


def _stage(kind: Kind, module: str) -> Stage:
    return Stage(module.removeprefix("model."), kind, (module,))


def _layers(kind: Kind, module: str, count: int) -> list[Stage]:
    return [Stage(f"{module.removeprefix('model.')}.{i}", kind, (f"{module}.{i}",), i) for i in range(count)]
