"""MetaVoice's small tokenizers, and functions as upstream has them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache

import numpy as np

from tts_core.audio.files import read_audio
from tts_core.audio.silence import trim
from tts_core.audio.speaker_slices import SAMPLE_RATE, TRIM_DB
from tts_core.metavoice.config import CODEBOOK_SIZE
from tts_core.metavoice.inputs import PADDING
from tts_core.metavoice.text import MetaVoiceTokenizer, Tokenizers

MERGES = (b"th", b"the", b" the", b"er", b"in", b" a", b"re", b"he", b"ll", b"hello")
PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@cache
def tokenizers() -> Tokenizers:
    ranks = {bytes([byte]): byte for byte in range(256)}
    ranks |= {piece: 256 + i for i, piece in enumerate(MERGES)}
    special = {"<|endoftext|>": 256 + len(MERGES)}
    return Tokenizers(*(MetaVoiceTokenizer(PATTERN, ranks, special, offset) for offset in (2049, 1025)))


def documents() -> dict[str, dict[str, str]]:
    """The tokenizers' files, by kind."""
    tables = tokenizers()
    files = {"metavoice": tables.first_stage, "metavoice_second_stage": tables.second_stage}
    return {kind: {"tokenizer.json": json.dumps(table.to_dict())} for kind, table in files.items()}


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
