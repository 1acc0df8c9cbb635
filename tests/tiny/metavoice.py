"""MetaVoice's networks of the real structure, small enough to run hundreds of times; random weights from a
seed. Heads, widths and layers divide nothing evenly that they need not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

import numpy as np

from tests.tiny.weights import Config, Weights
from tts_core.audio.files import read_audio
from tts_core.audio.silence import trim
from tts_core.audio.speaker_slices import SAMPLE_RATE, TRIM_DB
from tts_core.metavoice import config as metavoice
from tts_core.metavoice.config import CODEBOOK_SIZE, FirstStageConfig, SecondStageConfig
from tts_core.metavoice.inputs import PADDING
from tts_core.metavoice.text import MetaVoiceTokenizer, Tokenizers

MERGES = (b"th", b"the", b" the", b"er", b"in", b" a", b"re", b"he", b"ll", b"hello")
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXT_IDS = 256 + len(MERGES) + 1


@cache
def tokenizers() -> Tokenizers:
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {piece: 256 + i for i, piece in enumerate(MERGES)}
    special = {"<|endoftext|>": 256 + len(MERGES)}
    return Tokenizers(*(MetaVoiceTokenizer(PATTERN, ranks, special, offset) for offset in (2049, 1025)))


def read_speaker(path: str | os.PathLike[str]) -> np.ndarray:
    """A sound file as (L,) float32 samples at 16 kHz, with silence trimmed; errors of `read_audio`."""
    return trim(read_audio(path, SAMPLE_RATE, quality="HQ"), TRIM_DB)


def tilted(rows: Sequence[np.ndarray] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Text ids without the last, and codes, out of the second stage's input and output rows, as upstream.

    (Q, W) → (S - 1,), (Q, F) int32. A row's codes are its ids below 1024 at any position; all rows are
    cut to the shortest, so a code that is predicted in place of padding shifts its whole book.
    """
    rows = np.asarray(rows)
    books = [row[row < CODEBOOK_SIZE] for row in rows]
    frames = min(map(len, books))
    return rows[0][rows[0] > PADDING][:-1].astype(np.int32), np.stack(
        [book[:frames] for book in books]
    ).astype(np.int32)


def first_stage_config(*, bias: bool = False) -> FirstStageConfig:
    return FirstStageConfig(
        hidden_size=36,
        intermediate_size=52,
        num_hidden_layers=3,
        num_attention_heads=3,
        max_position_embeddings=60,
        vocab_size=2049 + TEXT_IDS,
        speaker_embedding_size=10,
        norm_eps=1e-5,
        bias=bias,
    )


def second_stage_config(*, bias: bool = False) -> SecondStageConfig:
    return SecondStageConfig(
        hidden_size=28,
        intermediate_size=44,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=40,
        vocab_sizes=(1025 + TEXT_IDS, 1025),
        target_vocab_sizes=(1025,) * 3,
        speaker_embedding_size=10,
        bias=bias,
    )


def first_stage_weights(
    config: FirstStageConfig, seed: int = 0, *, end: float = 1.0
) -> Weights[FirstStageConfig]:
    """end: factor on the logits of the end of audio."""
    weights = _weights(config, metavoice.first_stage_parameter_shapes(config), seed)
    weights.tensors["transformer.wtes.0.weight"][metavoice.END_OF_AUDIO] *= np.float32(end)
    return weights


def second_stage_weights(config: SecondStageConfig, seed: int = 1) -> Weights[SecondStageConfig]:
    return _weights(config, metavoice.second_stage_parameter_shapes(config), seed)


def _weights(config: Config, shapes: dict[str, tuple[int, ...]], seed: int) -> Weights[Config]:
    random, tensors = np.random.default_rng(seed), {}
    for name, shape in shapes.items():
        if metavoice.is_norm(name):
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif name.endswith(".bias"):
            tensors[name] = random.normal(0, 0.3, shape)
        elif ".wte" in name or ".wpe." in name:
            tensors[name] = random.normal(0, 0.6, shape)
        else:
            tensors[name] = random.normal(0, 1.5 * shape[-1] ** -0.5, shape)
    return Weights(config, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})
