"""Skips where a package of an extra is not installed: tests that need it name it, the others run."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

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
# tests whose commands and other processes need MLX; its absence there is no exception of the test
NEED_MLX = ("tests/mlx_port/", "tests/parity/verify/")
MODULES = {"PyTorch": "torch", "MLX": "mlx", "PyAV": "av"}
IMPORT = re.compile(r"No module named '(\w+)")


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
        if report.outcome == "skipped":  # half imported: tests that import from it would find names missing
            place = collector.path.relative_to(collector.config.rootpath).with_suffix("")
            sys.modules.pop(".".join(place.parts), None)
        return report

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if "mlx" in ABSENT and item.nodeid.startswith(NEED_MLX):
                item.add_marker(pytest.mark.skip(reason="MLX is not installed"))

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
    """Skip what fails for want of a package."""
    try:
        yield
    except Exception as error:
        if (title := missing(error)) is not None:
            pytest.skip(f"{title} is not installed")
        raise
