"""Speech on disk: shards of utterances, arrays of frames and a list of what they say."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Shard:
    """Utterances one behind the other. lengths: frames of each.  arrays: what is known of every frame, by
    name, (sum of the lengths, ...): samples, features, places; or codes, places.
    """

    texts: list[str]
    voices: list[int]
    lengths: list[int]
    arrays: Mapping[str, np.ndarray]


def write_shard(folder: Path, name: str, shard: Shard) -> None:
    """Complete or not there: the list, which marks the shard as done, is renamed into place last."""
    for kind, array in shard.arrays.items():
        np.save(folder / f"{name}-{kind}.npy", array)
    told = {"texts": shard.texts, "voices": shard.voices, "lengths": shard.lengths}
    unfinished = folder / f"{name}.part"
    unfinished.write_text(json.dumps(told | {"arrays": sorted(shard.arrays)}))
    os.replace(unfinished, folder / f"{name}.json")


def read_shard(folder: Path, name: str) -> Shard:
    told = json.loads((folder / f"{name}.json").read_text())
    arrays = {kind: np.load(folder / f"{name}-{kind}.npy") for kind in told["arrays"]}
    return Shard(told["texts"], told["voices"], told["lengths"], arrays)


def shard_names(folder: Path) -> list[str]:
    """Of the shards that are done, in order."""
    return sorted(path.stem for path in folder.glob("*.json"))


def wait_for_shards(folder: Path, count: int, patience: float = 600) -> list[str]:
    """Names of the first `count` shards, while another process still writes them.

    After `patience` seconds without enough, those that there are.
    """
    begun = time.monotonic()
    while len(names := shard_names(folder)) < count and time.monotonic() - begun < patience:
        time.sleep(1)
    if not names:
        raise SystemExit(f"no speech in {folder} after {patience:.0f} s; run the stage before this one")
    return names[:count]


def joined(folder: Path, names: Sequence[str], kind: str) -> np.ndarray:
    """One array of several shards."""
    return np.concatenate([np.load(folder / f"{name}-{kind}.npy") for name in names])
