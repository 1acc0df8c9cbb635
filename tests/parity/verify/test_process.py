"""`mlx-port verify` runs without TF32, in a process in which MLX has read nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlx_port.commands.main import run
from mlx_port.commands.verify import command
from mlx_port.runtime.arithmetic import VARIABLE
from tests.parity.verify.reporting import report

ROOT = Path(__file__).parents[3]
RUN = "from mlx_port.commands.verify import command; from tests.parity.verify.reporting import report; "


def facts(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize("value", ["0", "1", None])
def test_once_mlx_is_imported_it_is_another_process(
    value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the variable says now: nobody knows what it said at MLX's first product."""
    assert mx.default_device()
    monkeypatch.setattr(command, "_run", report)
    if value is None:
        monkeypatch.delenv(VARIABLE)
    else:
        monkeypatch.setenv(VARIABLE, value)
    assert run(["verify", "a", str(tmp_path / "facts.json"), "--seed", "1"]) == 0
    found = facts(tmp_path / "facts.json")
    assert found["process"] != os.getpid()
    assert (found["variable"], found["is_fresh"]) == ("0", True)
    assert os.environ.get(VARIABLE) == value
    assert run(["verify", "a", str(tmp_path / "facts.json"), "--seed", "0"]) == 1, "the verdict comes back"


@pytest.mark.parametrize(("value", "is_here"), [(None, True), ("0", True), ("1", False), ("", False)])
def test_as_a_command_of_its_own(value: str | None, is_here: bool, tmp_path: Path) -> None:
    """The command itself is such a process, unless its caller set the variable."""
    given = {name: text for name, text in os.environ.items() if name != VARIABLE}
    given |= {"PYTHONPATH": str(ROOT)} | ({} if value is None else {VARIABLE: value})
    program = f"{RUN}command._run = report; from mlx_port.commands.main import main; main()"
    words = [sys.executable, "-c", program, "verify", "a", str(tmp_path / "facts.json"), "--seed", "1"]
    with subprocess.Popen(words, env=given, cwd=tmp_path) as process:
        assert process.wait() == 0
    found = facts(tmp_path / "facts.json")
    assert (found["process"] == process.pid) is is_here
    assert (found["variable"], found["is_fresh"]) == ("0", True)
