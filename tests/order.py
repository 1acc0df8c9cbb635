"""A random order of the tests, by a seed: of files, and of the tests of each file."""

from __future__ import annotations

import random

import pytest

OPTION = "--random-order"


def shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Shuffle the files, and the tests of each; a file's tests stay together, for they share fixtures."""
    chance, files = random.Random(seed), dict[str, list[pytest.Item]]()
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order = list(files.values())
    chance.shuffle(order)
    for file in order:
        chance.shuffle(file)
    return [item for file in order for item in file]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """State how to repeat the order of a run that failed."""
    if exitstatus and (seed := terminalreporter.config.getoption(OPTION)) is not None:
        terminalreporter.write_line(f"the order of this run: {OPTION} {seed}")
