"""Shards of random speech for the recipe of the embedded voice."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from examples.train_voice import text
from examples.train_voice.flite import PHONES
from examples.train_voice.parameters import FEATURES, SPECTRUM
from examples.train_voice.settings import Settings
from examples.train_voice.speech import Shard, write_shard


def random_features(rng: np.random.Generator) -> np.ndarray:
    """(600, FEATURES), whose spectrum has a few large directions."""
    found = rng.normal(size=(600, FEATURES))
    found[:, :SPECTRUM] = found[:, :60] @ rng.normal(size=(60, SPECTRUM)) / 10
    return found


def write_codes(folder: Path, settings: Settings, rng: np.random.Generator, *, longest: int) -> None:
    """Write four hundred sentences of random codes, each of fewer than `longest` frames."""
    lengths = [int(n) for n in rng.integers(5, longest, 400)]
    said = [text.sentence(random.Random(n)) for n in range(400)]
    where = [np.linspace(0, len(words), length) for words, length in zip(said, lengths, strict=True)]
    count = sum(lengths)
    arrays = {
        "codes": rng.integers(0, 256, (count, settings.codec.n_codebooks)).astype(np.uint8),
        "places": np.concatenate(where).astype(np.float16),
        "phones": rng.integers(0, len(PHONES), count),
    }
    write_shard(folder, "00000", Shard(said, [n % 3 for n in range(400)], lengths, arrays))
