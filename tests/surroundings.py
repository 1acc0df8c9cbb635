"""Surroundings of a run of the tests, for noxfile.py: environments, other Pythons, a line for each result.

uv gets the packages; it is told of pip's PIP_FIND_LINKS and PIP_EXTRA_INDEX_URL.
"""

import atexit
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent.parent
BUILT = ROOT / "build/anywhere"
ENVIRONMENTS: dict[str, Path] = {}
LOCKED = (("--require-hashes", "--requirement", "locks/dev.txt"), ("--no-deps", "--editable", "."))
BEST = ("--index-strategy", "unsafe-best-match")  # as pip chooses among indexes
LINES: dict[str, str] = {}


class NotRun(Exception):
    """The machine lacks what a session needs."""


@dataclass(frozen=True)
class Start:
    """How the tests are started. env: None removes a variable. before: the words before Python's."""

    env: Mapping[str, str | None] = field(default_factory=dict)
    before: Sequence[str] = ()


def register(name: str, run: Callable[[nox.Session], str], *, default: bool = True) -> None:
    """Make a session of a function that returns its result in words."""

    def session(session: nox.Session) -> None:
        began = time.monotonic()
        LINES[name] = "FAILED"
        log_of(name).unlink(missing_ok=True)
        try:
            LINES[name] = run(session)
        except NotRun as reason:
            LINES[name] = f"not run: {reason}"
            session.skip(str(reason))
        except CommandFailed:
            reason = closing_line(name) or "in a step before the end of the tests"
            LINES[name] = f"FAILED: {reason}; see {log_of(name).relative_to(ROOT)}"
            raise
        finally:
            LINES[name] += f" ({time.monotonic() - began:.0f} s with installing)"

    nox.session(name=name, venv_backend="none", default=default)(session)


def log_of(name: str) -> Path:
    """File of a session's output."""
    return BUILT / f"{name}.log"


def closing_line(name: str) -> str:
    """pytest's last words about a session; nothing if it did not come to an end."""
    text = log_of(name).read_text("utf-8", "replace") if log_of(name).exists() else ""
    return next(iter(re.findall(r"^(?:=+ )?(\d+ [a-z]+.*? in [\d.]+s)", text, re.MULTILINE)[-1:]), "")


def run_tests(session: nox.Session, python: Path, start: Start, *words: str) -> str:
    """Run pytest in the current folder, and append to the session's log. Returns pytest's last line."""
    env = {"MLX_ENABLE_TF32": "0", "OMP_NUM_THREADS": "1", "LD_PRELOAD": None} | dict(start.env)
    command = [*start.before, str(python), "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider", *words]
    BUILT.mkdir(parents=True, exist_ok=True)
    with log_of(session.name).open("a") as log:
        session.run(*command, env=env, external=True, stdout=log, stderr=subprocess.STDOUT)
    return closing_line(session.name)


def uv(session: nox.Session, *words: str) -> None:
    """Run uv, which is told where pip looks besides the index."""
    told = {"UV_FIND_LINKS": "PIP_FIND_LINKS", "UV_EXTRA_INDEX_URL": "PIP_EXTRA_INDEX_URL"}
    env = {name: os.environ[source] for name, source in told.items() if source in os.environ}
    session.run(sys.executable, "-m", "uv", *words, env=env, external=True, silent=True)


def environment(
    session: nox.Session, name: str, *installs: Sequence[str], base: str = sys.executable
) -> Path:
    """Make an environment, once a run. Returns its Python. base: the Python that it is made of."""
    if name not in ENVIRONMENTS:
        python = BUILT / name / "bin/python"
        uv(session, "venv", "--quiet", "--clear", "--no-project", "--python", base, str(BUILT / name))
        for words in installs:
            uv(session, "pip", "install", "--quiet", "--python", str(python), *BEST, *words)
        ENVIRONMENTS[name] = python
    return ENVIRONMENTS[name]


def torch() -> tuple[str, ...]:
    """Requirement of the very build of PyTorch that is installed beside nox."""
    return "--constraint", "constraints.txt", f"torch=={metadata.version('torch')}"


def locked(session: nox.Session, base: str = sys.executable) -> Path:
    """Return the environment of `make test`; another one for another Python."""
    name = "locked" if base == sys.executable else f"locked-{Path(base).name}"
    return environment(session, name, *LOCKED, torch(), base=base)


def pythons(version: str) -> Iterator[Path]:
    """Find the interpreters of a version that start: pyenv's and those of PATH."""
    own = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    program = f"python{version}"
    places = [*own.glob(f"{version}.*/bin/{program}"), *(Path(one, program) for one in os.get_exec_path())]
    for place in places:
        if place.is_file():
            asked = [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
                yield place


@atexit.register
def print_lines() -> None:
    """Print a line of each session that ran."""
    if LINES:
        LINES["other extras"] = "play, ray and judge are in no session; cuda12 and cuda13 need their GPU"
    for name, line in LINES.items():
        print(f"{name:16} {line}")
