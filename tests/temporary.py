"""Temporary files of a run: all in one folder, in which nothing may be left when it ends."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from contextlib import ExitStack
from multiprocessing.util import Finalize
from pathlib import Path

import pytest

COMPILED = "mlx"  # MLX keeps here what it compiles for a CPU, for the next process, too
OTHERS = ("torchinductor_", "org.chromium.", ".org.chromium.", "pymp-")  # PyTorch's, Chromium's, Python's
LEFT = pytest.StashKey[list[str]]()
_FOLDERS = ExitStack()
atexit.register(_FOLDERS.close)  # of the commands of tests, which run without pytest


def run_folder(name: str) -> Path:
    """Make a folder that is removed at the end of the run."""
    return Path(_FOLDERS.enter_context(tempfile.TemporaryDirectory(prefix=f"mlx-port-{name}-")))


def pytest_configure(config: pytest.Config) -> None:
    """Give the run its folder, which workers of xdist share, and each process a cache of its own."""
    if not hasattr(config, "workerinput"):
        usual, own = tempfile.gettempdir(), tempfile.mkdtemp(prefix="mlx-port-tests-")
        # after multiprocessing, which removes its folder with priority -100
        Finalize(None, shutil.rmtree, (own,), {"ignore_errors": True}, exitpriority=-200)
        if importlib.util.find_spec("mlx") is not None:
            compiled = Path(usual, COMPILED)
            compiled.mkdir(exist_ok=True)
            if os.access(compiled, os.W_OK | os.X_OK):  # else it is another user's
                Path(own, COMPILED).symlink_to(compiled)
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        variable = "PYTEST_DEBUG_TEMPROOT"  # of tmp_path, which stays after the last runs
        patch.setenv(variable, os.environ.get(variable, usual))
        patch.setenv("TMPDIR", own)
        patch.setattr(tempfile, "tempdir", own)
    os.environ["XDG_CACHE_HOME"] = str(run_folder("cache"))  # every run converts the embedded voice again


@pytest.hookimpl(trylast=True)  # after the fixtures of the session, and the workers of xdist
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the run fail if it left temporary files."""
    _FOLDERS.close()
    if hasattr(session.config, "workerinput"):
        return
    names = sorted(path.name for path in Path(tempfile.gettempdir()).iterdir())
    left = [name for name in names if name != COMPILED and not name.startswith(OTHERS)]
    if left:
        session.config.stash[LEFT] = left
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what the run left."""
    if left := config.stash.get(LEFT, []):
        terminalreporter.write_line(f"ERROR temporary files are left: {', '.join(left)}", red=True)
