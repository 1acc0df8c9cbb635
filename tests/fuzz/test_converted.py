"""A converted folder with a changed description or header: one clear error on both sides, or a model."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import mlx_port.pipelines
import torch_ref.pipelines
from tests.contract.speakers import folder
from tests.fuzz import made
from tests.tiny.record import record_again
from tts_core.models import NAMES

pytestmark = pytest.mark.rest


def copied(chance: random.Random, ending: str, place: Path) -> Path:
    """A copy of a model's folder, and a file in it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder(chance.choice(NAMES)), place)
    return chance.choice(sorted(place.rglob(f"*{ending}")))


def load_both(seed: int, case: object, place: Path) -> int:
    """On both sides; how many took it."""
    loaded = 0
    for side in (mlx_port.pipelines, torch_ref.pipelines):
        with made.clear(seed, case) as refused:
            side.load(place)
            loaded += 1
        assert all(place.name in str(error) or str(error).startswith("memory: ") for error in refused), case
    return loaded


@made.cases(40, 2000)
def test_descriptions(seeds: range, tmp_path: Path) -> None:
    loaded = 0
    for seed in seeds:
        chance = random.Random(seed)
        file = copied(chance, ".json", tmp_path / "copy")
        content = json.dumps(made.changed_json(chance, json.loads(file.read_text())))
        file.write_text(content)
        loaded += load_both(seed, f"{file}: {content}", tmp_path / "copy")
    assert 0 < loaded < 2 * len(seeds)


@made.cases(40, 2000)
def test_headers(seeds: range, tmp_path: Path) -> None:
    loaded = 0
    for seed in seeds:
        chance = random.Random(seed)
        file = copied(chance, ".safetensors", tmp_path / "copy")
        content = file.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        if chance.random() < 0.5:
            header = made.changed_bytes(chance, content[:end])
        else:
            changed = json.dumps(made.changed_json(chance, json.loads(content[8:end]))).encode()
            header = len(changed).to_bytes(8, "little") + changed
        file.write_bytes(header + content[end:])
        record_again(tmp_path / "copy")
        loaded += load_both(seed, f"{file}: {header[:500]!r}", tmp_path / "copy")
    assert 0 < loaded < 2 * len(seeds)
