"""The generator of Qwen3-TTS's vectors, as far as it runs without the original code: its samplers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = [pytest.mark.golden, pytest.mark.rest]
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/data/golden/qwen3"


def generated(out: Path, *flags: str) -> dict[str, np.ndarray]:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    command = [sys.executable, str(FOLDER / "generate.py"), str(out / "no checkout"), str(out), *flags]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--only", "sampler"], env=environment, check=True, capture_output=True)
    return load_file(out / "sampler/golden.safetensors")


def test_without_a_seed_it_makes_the_committed_vectors(tmp_path):
    committed, made = load_file(FOLDER / "sampler/golden.safetensors"), generated(tmp_path)
    assert made.keys() == committed.keys()
    for name, expected in committed.items():
        np.testing.assert_array_equal(made[name], expected, name)


def test_a_seed_makes_others(tmp_path):
    committed, made = load_file(FOLDER / "sampler/golden.safetensors"), generated(tmp_path, "--seed", "1")
    assert made.keys() == committed.keys()
    assert any(not np.array_equal(made[name], committed[name]) for name in made if name.endswith(".scores"))
