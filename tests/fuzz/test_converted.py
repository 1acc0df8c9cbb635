"""A converted folder with a changed description or header: one clear error on both sides, or a model."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

import mlx_port.pipelines
import torch_ref.pipelines
from converters.convert import convert
from converters.published import open_published
from tests.fuzz import made
from tests.tiny.dia import dac_weights, dia_config, dia_weights, published_dac_config, write_published
from tests.tiny.dia2 import published_dia2
from tests.tiny.published_models import sources
from tests.tiny.qwen3 import write_published as published_qwen3
from tests.tiny.record import record_again
from tts_core.models import NAMES

pytestmark = pytest.mark.rest

SIDES = {"mlx_port": mlx_port.pipelines, "torch_ref": torch_ref.pipelines}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("converted")
    dia, dac = dia_weights(dia_config(), seed=3, eos=1.3), dac_weights(published_dac_config())
    write_published(place / "published", dia, dac)
    convert(open_published(place / "published", offline=True), place / "dia", dtype="float32")
    for model in ("mars5", "metavoice"):
        convert(open_published(sources(model)), place / model, dtype="float32")
    for model, write in (("dia2", published_dia2), ("qwen3", published_qwen3)):
        convert(open_published(write(place / f"published-{model}")), place / model, dtype="float32")
    return [place / model for model in NAMES]


def copied(chance: random.Random, folders: list[Path], ending: str, place: Path) -> Path:
    """A copy of one of the folders, and a file in it."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(chance.choice(folders), place)
    return chance.choice(sorted(place.rglob(f"*{ending}")))


def load_both(seed: int, case: object, folder: Path) -> int:
    """On both sides; how many took it."""
    loaded = 0
    for side in SIDES.values():
        with made.clear(seed, case) as refused:
            side.load(folder)
            loaded += 1
        assert all(folder.name in str(error) or str(error).startswith("memory: ") for error in refused), case
    return loaded


@made.cases(40, 2000)
def test_descriptions(seeds: range, folders: list[Path], tmp_path: Path) -> None:
    loaded = 0
    for seed in seeds:
        chance = random.Random(seed)
        file = copied(chance, folders, ".json", tmp_path / "copy")
        content = json.dumps(made.changed_json(chance, json.loads(file.read_text())))
        file.write_text(content)
        loaded += load_both(seed, f"{file}: {content}", tmp_path / "copy")
    assert 0 < loaded < 2 * len(seeds)


@made.cases(40, 2000)
def test_headers(seeds: range, folders: list[Path], tmp_path: Path) -> None:
    loaded = 0
    for seed in seeds:
        chance = random.Random(seed)
        file = copied(chance, folders, ".safetensors", tmp_path / "copy")
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
