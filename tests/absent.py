"""Skips where a package of an extra is not installed: tests that need it name it, the others run."""

import importlib.util
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tts_core.errors import NotFoundError

# what extras bring, by module, as messages name it
OPTIONAL = {
    "torch": "torch",
    "mlx": "MLX",
    "av": "PyAV",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "prometheus_client": "prometheus-client",
    "multipart": "python-multipart",
    "websockets": "websockets",
    "wyoming": "wyoming",
}
ABSENT = {module: title for module, title in OPTIONAL.items() if importlib.util.find_spec(module) is None}
# of errors that stand for a package without the import that failed
SAID = re.compile("^(?:.*needs )?(PyTorch|MLX|PyAV)(?:, which)? is not installed")
MODULES = {"PyTorch": "torch", "MLX": "mlx", "PyAV": "av"}
IMPORT = re.compile(r"No module named '(\w+)")
WORDS = re.compile(r"(PyTorch|MLX|PyAV)(?:, which)? is not installed|No module named '(\w+)")


def missing(error: BaseException) -> str | None:
    """Title of the absent package that an error comes from; None if it comes from something else."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ModuleNotFoundError) and seen.name is not None:
            module = seen.name.partition(".")[0]
        else:
            found = SAID.search(str(seen))
            module = MODULES[found[1]] if found else ""
        if module in ABSENT:
            return ABSENT[module]
        seen = seen.__cause__ or seen.__context__
    return None


if ABSENT:

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
        report = yield
        found = IMPORT.search(str(report.longrepr)) if report.outcome == "failed" else None
        if found and found[1] in ABSENT:
            report.outcome, report.result = "skipped", []
            report.longrepr = (str(collector.path), 0, f"Skipped: {ABSENT[found[1]]} is not installed")
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup() -> Iterator[None]:
        with skipping():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call() -> Iterator[None]:
        with skipping():
            return (yield)


@contextmanager
def skipping() -> Iterator[None]:
    """Skip what fails for want of a package: by its error, or by what a command or process said."""
    with pytest.MonkeyPatch.context() as patch:
        said = listen(patch)
        try:
            yield
        except Exception as error:
            if (title := missing(error) or next(iter(said), None)) is not None:
                pytest.skip(f"{title} is not installed")
            raise


def listen(patch: pytest.MonkeyPatch) -> list[str]:
    """Note the absent packages that NotFoundErrors and outputs of processes name, while `patch` lasts."""
    said: list[str] = []
    make, communicate = NotFoundError.__init__, subprocess.Popen.communicate

    def note(words: object) -> None:
        for title, module in WORDS.findall(
            words.decode(errors="replace") if isinstance(words, bytes) else str(words)
        ):
            if (module or MODULES[title]) in ABSENT:
                said.append(ABSENT[module or MODULES[title]])

    def made(self: NotFoundError, *words: object, **named: object) -> None:
        make(self, *words, **named)
        note(words)

    def communicated(self: subprocess.Popen[Any], *given: Any, **named: Any) -> Any:
        out = communicate(self, *given, **named)
        note(out[0])
        note(out[1])
        return out

    patch.setattr(NotFoundError, "__init__", made)
    patch.setattr(subprocess.Popen, "communicate", communicated)
    return said
