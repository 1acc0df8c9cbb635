"""Every model through every public door: what it says there must not change, and the command that records it.

    python -m tests.parity.recorded_doors [MODEL...]

It rewrites tests/data/recorded/doors. The networks are those of tests/contract, small and random.
tests/parity/scenes.py has what callers do there.

A scene is recorded with the first seed with which MLX and PyTorch, in float32 and in float64, agree on codes,
ends, parts, captions and errors. Samples are some of the float64 run's, beside the bound that
tests.tolerance derives from the float32 run. Numbers of bytes in errors are masked.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.parity.doors import Door, Heard
from tests.parity.recorded_runs import DATA
from tests.parity.scenes import SCENES
from tests.sides import SIDES
from tests.tolerance import bound
from tts_core import models

DOORS = DATA / "doors"
STRIDES = {"dia": 13, "qwen3": 13}  # divide no hop length; those of the others, with more samples a frame:
STRIDE = 53
SEEDS = 20  # that recording tries


def differences(one: Mapping[str, Heard], other: Mapping[str, Heard]) -> list[str]:
    """Names of what differs but in samples; errors may name the side's own remedies."""
    found = [] if one.keys() == other.keys() else ["requests"]
    for name in one.keys() & other.keys():
        mine, theirs = one[name].facts(), other[name].facts()
        found += [f"{name}: {key}" for key in mine if key != "error" and mine[key] != theirs.get(key)]
        if (mine["error"] is None) != (theirs["error"] is None):
            found.append(f"{name}: error")
        if one[name].parts and other[name].parts and not np.array_equal(one[name].codes, other[name].codes):
            found.append(f"{name}: codes")
    return found


def agreed(model: str, name: str) -> tuple[int, Mapping[str, Mapping[str, Heard]]]:
    """The first seed on which all sides agree, with what each of them said."""
    for seed in range(1, SEEDS + 1):
        try:
            said = {side: SCENES[model][name](Door(model, side), seed) for side in ("float64", *SIDES)}
        except AssertionError as error:
            print(f"{model}, {name}, seed {seed}: {error}")
            continue
        differ = [differences(said["float64"], said[side]) for side in SIDES]
        if not any(differ):
            return seed, said
        print(f"{model}, {name}, seed {seed}: {differ}")
    raise AssertionError(f"{model}, {name}: no seed of {SEEDS} on which all sides agree")


def record(model: str) -> None:
    """Write the two files of a model."""
    facts, tensors = {}, dict[str, np.ndarray]()
    for name in SCENES[model]:
        seed, said = agreed(model, name)
        facts[name] = {"seed": seed, "heard": {}}
        for who, truth in said["float64"].items():
            texts = {side: said[side][who].error for side in SIDES}
            error = texts if len({*texts.values()}) > 1 else texts["torch"]
            facts[name]["heard"][who] = {**truth.facts(), "error": error}
            if truth.parts:
                at = f"{name}/{who}"
                oracle = truth.audio.astype(np.float64)
                tensors[f"{at}/codes"] = truth.codes.astype(np.int16, order="C")
                tensors[f"{at}/samples"] = truth.audio[:: stride(model)].astype(np.float32)
                tensors[f"{at}/bound"] = np.array(bound(said["torch"][who].audio, oracle), np.float64)
        print(f"{model}, {name}: seed {seed}, {len(said['float64'])} heard", flush=True)
    DOORS.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(facts[name], sort_keys=True)}" for name in sorted(facts)]
    (DOORS / f"{model}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    save_file(tensors, DOORS / f"{model}.safetensors")


def stride(model: str) -> int:
    """Distance of the samples that are recorded."""
    return STRIDES.get(model, STRIDE)


@cache
def recorded(model: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The facts of a model's scenes, and its codes, samples and bounds."""
    return json.loads((DOORS / f"{model}.json").read_text()), load_file(DOORS / f"{model}.safetensors")


def main() -> None:
    for model in sys.argv[1:] or models.NAMES:
        record(model)


if __name__ == "__main__":
    os.environ["MLX_ENABLE_TF32"] = "0"  # read when MLX is imported
    with tempfile.TemporaryDirectory() as cache_folder:
        os.environ["XDG_CACHE_HOME"] = cache_folder
        logging.disable(logging.WARNING)
        main()
