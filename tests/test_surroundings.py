"""The sample of the tests, and the sessions of `make anywhere`."""

import os
import platform
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests import surroundings
from tests.sample import NONE, WHOLE, sample

ROOT = Path(__file__).parent.parent
SESSIONS = [
    *("no-blas", "haswell", "aten-default", "aten-avx2", "one-core", "four-threads"),
    *("other-user", "other-locale", "random-order", "newest", "lowest"),
    *("python-3.11", "python-3.12", "python-3.13", "python-3.14"),
    *("without-cpu", "without-torch", "without-formats", "without-serve", "without-wyoming", "wheel"),
    *("clients", "extras"),
]
BY_NAME = ["whole-no-blas", "whole-lowest", "mlx-audio"]
THREE = """
import sys
from tests.surroundings import NotRun, register, run_tests, Start

def fails(session):
    return run_tests(session, sys.executable, Start(), "no/such/test.py")

def is_not_run(session):
    raise NotRun("no such machine")

register("good", lambda session: "1 passed in 0.10s")
register("lacking", is_not_run)
register("bad", fails)
"""


class Item:
    """As much of a test as the sample looks at."""

    def __init__(self, name: str, *marks: str):
        self.nodeid, self.marks = name, marks

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


def chosen(*items: Item) -> set[str]:
    return sample(items)  # pyright: ignore[reportArgumentType]


def test_every_file_is_in_the_sample():
    items = [Item(f"tests/{file}.py::test_{name}") for file in "abc" for name in range(9)]
    names = chosen(*items)
    assert sorted(name.partition("::")[0] for name in names) == ["tests/a.py", "tests/b.py", "tests/c.py"]
    assert chosen(*items[::-1]) == names
    assert chosen(*items[:4], *items[9:]) >= {name for name in names if "tests/a.py" not in name}


def test_one_that_can_run_is_preferred():
    tests = [f"tests/a.py::test_{name}" for name in range(9)]
    for runs in tests:
        assert chosen(*(Item(name, *([] if name == runs else ["skip"])) for name in tests)) == {runs}
    assert len(chosen(*(Item(name, "skip") for name in tests))) == 1


def test_some_files_are_in_the_sample_as_a_whole_and_some_are_not():
    tests = [f"tests/tts_core/memory/test_computer.py::test_{name}" for name in range(3)]
    assert chosen(*map(Item, tests)) == {*tests}
    for file in NONE:
        assert chosen(Item(f"{file}::test_it")) == set()
    assert [place for place in (*WHOLE, *NONE) if not (ROOT / place).exists()] == []


def nox(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("nox", reason="nox, of the dev extra, is not installed")
    command = [sys.executable, "-m", "nox", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_the_sessions_of_make_anywhere():
    listed = re.findall(r"^([*-]) (\S+)", nox("--list").stdout, re.MULTILINE)
    assert listed == [*(("*", name) for name in SESSIONS), *(("-", name) for name in BY_NAME)]


def test_sessions_of_other_instruction_sets_run_the_contract_too(monkeypatch):
    pytest.importorskip("nox", reason="nox, of the dev extra, is not installed")
    runs, ran = {}, []
    monkeypatch.setattr(surroundings, "register", lambda name, run, **_: runs.setdefault(name, run))
    monkeypatch.setattr(surroundings, "locked", lambda session: Path("python"))
    monkeypatch.setattr(
        surroundings, "run_tests", lambda _, python, start, *words: ran.append((start.env, words)) or "passed"
    )
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    file = runpy.run_path(str(ROOT / "noxfile.py"))
    file["haswell"].__globals__["BLAS"] = (__file__,)
    for name in ("haswell", "aten-avx2"):
        ran.clear()
        assert runs[name](None) == "passed; tests/contract: passed"
        [(env, sample), (same, contract)] = ran
        assert env == same
        assert "--sample" in sample
        assert contract[:2] == ("-m", "not slow")
        assert contract[-1] == "tests/contract"
    assert env == {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}


@pytest.mark.skipif(not os.access(ROOT, os.W_OK), reason="logs of sessions are in the repository")
def test_each_session_has_a_line_and_one_that_fails_fails_all(tmp_path):
    (tmp_path / "noxfile.py").write_text(THREE)
    done = nox("--noxfile", str(tmp_path / "noxfile.py"))
    assert done.returncode == 1
    lines = [re.sub(r" +", " ", line) for line in done.stdout.splitlines()][-4:]
    assert re.fullmatch(r"good 1 passed in 0\.10s \(\d+ s with installing\)", lines[0])
    assert lines[1].startswith("lacking not run: no such machine (")
    assert lines[2].startswith(
        "bad FAILED: in a step before the end of the tests; see build/anywhere/bad.log ("
    )
    assert nox("--noxfile", str(tmp_path / "noxfile.py"), "--session", "good", "lacking").returncode == 0
