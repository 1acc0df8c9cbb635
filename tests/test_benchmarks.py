"""Benchmarks: what `make bench` runs, what their README lists, and what they import."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
COMMANDS = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
WITHOUT, REST = (FOLDER / "README.md").read_text("utf-8").split("## Others")


def in_make() -> list[str]:
    [found] = re.findall(r"(?m)^BENCHMARKS := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text())
    return found.replace("\\", " ").split()


def in_readme(text: str) -> list[str]:
    return re.findall(r"(?m)^\| `(\w+)\.py` \|", text)


def test_the_readme_lists_every_command_once():
    assert sorted(in_readme(WITHOUT) + in_readme(REST)) == sorted(COMMANDS)


def test_make_bench_runs_those_that_need_nothing():
    assert in_make() == in_readme(WITHOUT)


def imported(path: Path) -> set[str]:
    found = (
        node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ImportFrom)
    )
    return {node.module for node in found if node.module and node.module.startswith("benchmarks.")}


@pytest.mark.parametrize("path", [*FOLDER.rglob("*.py")], ids=lambda path: str(path.relative_to(FOLDER)))
def test_what_is_shared_is_in_lib(path):
    assert {name.split(".")[1] for name in imported(path)} <= {"lib", "limits"}


@pytest.mark.rest
@pytest.mark.parametrize("name", in_make())
def test_make_bench_needs_no_argument(name):
    """Its parser accepts an empty command line; nothing is measured."""
    script = (
        "import argparse, runpy, sys\n"
        "def stop(self, args=None, namespace=None):\n"
        "    argparse.ArgumentParser.parse_known_args(self, args, namespace)\n"
        "    raise SystemExit(0)\n"
        "argparse.ArgumentParser.parse_args = stop\n"
        f"sys.argv = ['{name}']\n"
        f"runpy.run_path({str(COMMANDS[name])!r}, run_name='__main__')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
