"""Speech on disk: shards of utterances with arrays of frames and a list of texts."""

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
    """Utterances in sequence.

    lengths: frames of each.  arrays: values of every frame by name, (sum of the lengths, ...): samples,
    features, places, phones; or codes, places, phones.
    """

    texts: list[str]
    voices: list[int]
    lengths: list[int]
    arrays: Mapping[str, np.ndarray]


def write_shard(folder: Path, name: str, shard: Shard) -> None:
    """Write a shard atomically: the list, which marks it as done, is renamed into place last."""
    for kind, array in shard.arrays.items():
        np.save(folder / f"{name}-{kind}.npy", array)
    listed = {"texts": shard.texts, "voices": shard.voices, "lengths": shard.lengths}
    unfinished = folder / f"{name}.part"
    unfinished.write_text(json.dumps(listed | {"arrays": sorted(shard.arrays)}))
    os.replace(unfinished, folder / f"{name}.json")


def read_shard(folder: Path, name: str) -> Shard:
    listed = json.loads((folder / f"{name}.json").read_text())
    arrays = {kind: np.load(folder / f"{name}-{kind}.npy") for kind in listed["arrays"]}
    return Shard(listed["texts"], listed["voices"], listed["lengths"], arrays)


def shard_names(folder: Path) -> list[str]:
    """Names of the finished shards, in order."""
    return sorted(path.stem for path in folder.glob("*.json"))


def wait_for_shards(folder: Path, count: int, patience: float = 600) -> list[str]:
    """Wait for `count` shards that another process writes. Returns their names.

    After `patience` seconds, returns the shards that exist. Raises SystemExit if there are none.
    """
    begun = time.monotonic()
    while len(names := shard_names(folder)) < count and time.monotonic() - begun < patience:
        time.sleep(1)
    if not names:
        raise SystemExit(f"no speech in {folder} after {patience:.0f} s; run the previous stage first")
    return names[:count]


def concatenated(folder: Path, names: Sequence[str], kind: str) -> np.ndarray:
    """Concatenate one array of several shards."""
    return np.concatenate([np.load(folder / f"{name}-{kind}.npy") for name in names])
