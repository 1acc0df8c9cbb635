"""pytest plugin: name the running test to coverage, run only the chosen tests, record results."""

import json
import resource
import sys
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants")
    group.addoption("--mutants-record", type=Path, help="file to write outcomes to")
    group.addoption("--mutants-chosen", type=Path, help="file that lists the tests to run")
    group.addoption("--mutants-memory", type=int, help="bytes of address space of a process")


def pytest_configure(config: pytest.Config) -> None:
    if memory := config.getoption("--mutants-memory"):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    if (path := config.getoption("--mutants-record")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(path))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item):
    _context(item.nodeid)
    try:
        return (yield)
    finally:
        _context("")


def _context(name: str) -> None:
    measured = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if measured is not None:
        measured.switch_context(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if path := config.getoption("--mutants-chosen"):
        chosen = set(json.loads(path.read_text()))
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
        items[:] = [item for item in items if item.nodeid in chosen]


class Record:
    """Seconds and outcome by test, and the first failure."""

    def __init__(self, path: Path):
        self.path = path
        self.tests: dict[str, dict[str, Any]] = {}
        self.failure: dict[str, str] | None = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        begun = {"seconds": 0.0, "outcome": "passed", "rest": "rest" in report.keywords}
        test = self.tests.setdefault(report.nodeid, begun)
        test["seconds"] = round(test["seconds"] + report.duration, 4)
        if report.outcome != "passed" and test["outcome"] != "failed":
            test["outcome"] = report.outcome
        self._failed(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._failed(report)

    def _failed(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and self.failure is None:
            errors = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
            self.failure = {"test": report.nodeid, "error": " ".join((errors or [""])[0][1:].split())}

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps({"tests": self.tests, "failure": self.failure}))
