"""Synthesised speech on disk: shards of utterances, each an array of samples and a list of what they say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Shard:
    """Utterances one behind the other. array: (L,) int16 samples, or (T, Q) uint8 codes of them."""

    texts: list[str]
    voices: list[int]
    lengths: list[int]
    array: np.ndarray

    def pieces(self) -> list[np.ndarray]:
        """One view an utterance."""
        return np.split(self.array, np.cumsum(self.lengths)[:-1])


def write_shard(folder: Path, name: str, shard: Shard) -> None:
    """Complete or not there: the list, which marks the shard as done, is renamed into place last."""
    np.save(folder / f"{name}.npy", shard.array)
    told = {"texts": shard.texts, "voices": shard.voices, "lengths": shard.lengths}
    unfinished = folder / f"{name}.part"
    unfinished.write_text(json.dumps(told))
    os.replace(unfinished, folder / f"{name}.json")


def read_shard(folder: Path, name: str) -> Shard:
    told = json.loads((folder / f"{name}.json").read_text())
    return Shard(told["texts"], told["voices"], told["lengths"], np.load(folder / f"{name}.npy"))


def shard_names(folder: Path) -> list[str]:
    """Of the shards that are done, in order."""
    return sorted(path.stem for path in folder.glob("*.json"))


def wait_for_speech(folder: Path, seconds: float, sample_rate: int, patience: float = 300) -> list[str]:
    """Names of shards that hold `seconds` of speech, while another process still writes them.

    After `patience` seconds without enough, what there is.
    """
    begun = time.monotonic()
    while True:
        names, held = [], 0.0
        for name in shard_names(folder):
            if held >= seconds:
                return names
            names.append(name)
            held += (folder / f"{name}.npy").stat().st_size / 2 / sample_rate
        if held >= seconds or time.monotonic() - begun > patience:
            return names
        time.sleep(2)


def joined(folder: Path, names: Sequence[str]) -> np.ndarray:
    """The samples of several shards, (L,) int16."""
    return np.concatenate([np.load(folder / f"{name}.npy") for name in names])
