"""Sets of golden vectors other than the committed one: a single model, other files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.cases import DEFAULT

TESTS = Path(__file__).parents[1]
MODELS = sorted(folder.name for folder in DEFAULT.iterdir())


def test_only_the_golden_tests_follow_another_set() -> None:
    """Other tests name files of the committed set, which another set may lack."""
    followers = [
        str(file.relative_to(TESTS))
        for file in TESTS.rglob("*.py")
        if file.parent != Path(__file__).parent
        and any(name in file.read_text() for name in ("MLX_PORT_GOLDEN", "golden_root"))
    ]
    assert not followers


@pytest.mark.slow
@pytest.mark.parametrize("model", [*MODELS, "another"])
def test_a_set_of_one_model(model: str, tmp_path: Path) -> None:
    """All golden tests pass with a set of only one model, or of a model that does not exist yet."""
    (tmp_path / model).mkdir()
    if model in MODELS:
        for file in (DEFAULT / model).iterdir():
            (tmp_path / model / file.name).symlink_to(file)
    else:
        (tmp_path / model / "golden.safetensors").write_text("")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "golden", "-p", "no:cacheprovider", str(TESTS)],
        env={**os.environ, "MLX_PORT_GOLDEN": str(tmp_path)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
