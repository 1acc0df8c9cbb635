"""Estimates of every model's memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.speakers import every_model, every_side

# of benchmarks/memory.py, each in a process of its own
JOBS = {
    "dia": "60x50,250x300,100x100x8",
    "dia2": "40,40x4",
    "mars5": "200x75",
    "metavoice": "150x4,60xmbd",
    "qwen3": "40",
}


@pytest.mark.slow
@every_model
@every_side
def test_estimates_are_near_measured_peaks(model: str, side: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "benchmarks/memory.py", "--model", model, "--side", side]
    done = subprocess.run(
        [*command, "--jobs", JOBS[model]], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
