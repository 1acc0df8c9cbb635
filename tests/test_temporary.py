"""A run leaves no temporary files, and a random order of its tests can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.order import shuffled

ROOT = Path(__file__).parent.parent
CLEAN = """
import tempfile
from multiprocessing.util import get_temp_dir
from tests.temporary import run_folder

def test_folders():
    assert run_folder("one").is_dir()
    with tempfile.TemporaryDirectory():
        get_temp_dir()  # which Python removes at its end
"""
MESSY = f"{CLEAN}    tempfile.mkdtemp(prefix='mlx-port-messy-')\n"


def run(folder: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "work").mkdir()
    (folder / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.temporary",
        "-p",
        "no:cacheprovider",
        *words,
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "work")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)


@pytest.mark.parametrize("words", [[], ["-n", "2"]], ids=["alone", "workers"])
@pytest.mark.parametrize(("text", "code"), [(CLEAN, 0), (MESSY, 1)], ids=["clean", "messy"])
def test_files_that_are_left_fail_the_run(tmp_path: Path, text: str, code: int, words: list[str]) -> None:
    found = run(tmp_path, text, *words)
    assert (found.returncode, found.stderr) == (code, ""), found.stdout
    assert ("ERROR temporary files are left: mlx-port-messy-" in found.stdout) == bool(code)
    assert "1 passed" in found.stdout
    assert {path.name for path in (tmp_path / "work").iterdir()} <= {"mlx"}


def order(seed: int) -> list[str]:
    items = [SimpleNamespace(nodeid=f"{file}.py::test_{n}") for file in "abcdef" for n in range(6)]
    return [item.nodeid for item in shuffled(items, seed)]  # pyright: ignore[reportArgumentType]


def test_a_seed_repeats_an_order_in_which_the_tests_of_a_file_stay_together() -> None:
    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    files = [file for file, _ in groupby(order(1), key=lambda name: name[0])]
    assert sorted(files) == [*"abcdef"] != files
