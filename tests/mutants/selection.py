"""Choose the tests for a mutant: those that ran its line, one case of each function first, within a time."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import NamedTuple

PACKAGES = ("tts_core", "converters", "torch_ref", "mlx_port")
GPU = "torch_ref/cuda"  # captured steps and kernels, which run only there

PHASE = re.compile(r" \((setup|call|teardown)\)$")  # as pytest passes it to processes that a test starts


class Place(NamedTuple):
    """Lines of a statement (its header, if it holds others).

    at_import: it runs when the module is imported.
    """

    first: int
    last: int
    at_import: bool


def test_of(context: str) -> str:
    """Return the test's name, given coverage's context of the test or of a process that it started."""
    return PHASE.sub("", context)


test_of.__test__ = False  # its name looks like a test's


def place_of(source: str, first: int, last: int) -> Place:
    """Find the statement around a change in lines first to last, which are part of it in any case."""
    at_import, begin, end = True, 0, 0
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        start, header = node.lineno, node.end_lineno or node.lineno
        inner = _inside(node)
        if inner is not None:
            header = max(start, inner - 1)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                start = min([start, *(each.lineno for each in node.decorator_list)])
                at_import = at_import and not inner <= first <= (node.end_lineno or first)
        if begin <= start <= first <= header:
            begin, end = start, header
    return Place(min(begin or first, first), max(end, last), at_import)


def importers(path: str, sources: Mapping[str, str]) -> set[str]:
    """List the files that import the module at `path`, anywhere in them.  sources: text by path."""
    parts = PurePosixPath(path).with_suffix("").parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return {other for other, text in sources.items() if other != path and module in _imported(text)}


def runs_on_a_cpu(path: str) -> bool:
    """Check that a file of the packages is not only CUDA graphs and Triton kernels."""
    return not path.startswith(f"{GPU}/")


def choose(tiers: Sequence[Iterable[str]], seconds: Mapping[str, float], budget: float) -> list[str]:
    """Take tests while their sum of seconds stays within the budget.

    tiers: tests, most relevant first.  In a tier one case of each test function comes before a second one,
    fastest first.  Tests without a time, which did not pass, are left out.
    """
    chosen: dict[str, None] = {}
    for tier in tiers:
        cases: Counter[str] = Counter()
        ranked = []
        for test in sorted(set(tier) & set(seconds), key=lambda test: (seconds[test], test)):
            function = test.partition("[")[0]
            ranked.append((cases[function], seconds[test], test))
            cases[function] += 1
        for _, cost, test in sorted(ranked):
            if test not in chosen and cost <= budget:
                chosen[test] = None
                budget -= cost
    return list(chosen)


def files_fastest_first(tests: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Order the tests' files by time; within a file pytest's order saves shared fixtures."""
    costs: defaultdict[str, float] = defaultdict(float)
    for test in tests:
        costs[file_of(test)] += seconds[test]
    return sorted(costs, key=lambda file: (costs[file], file))


def file_of(test: str) -> str:
    """Return the file of a test's name."""
    return test.partition("::")[0]


def same_files(tests: Iterable[str], known: Iterable[str]) -> set[str]:
    """List all known tests of these tests' files: they may share the fixture or cache that ran the line."""
    files = {file_of(test) for test in tests}
    return {test for test in known if file_of(test) in files}


def _inside(node: ast.stmt) -> int | None:
    """First line of the body of a compound statement."""
    for child in [*getattr(node, "body", []), *getattr(node, "cases", [])]:
        if isinstance(child, ast.match_case):
            return child.pattern.lineno
        return min([child.lineno, *(each.lineno for each in getattr(child, "decorator_list", []))])
    return None


@cache
def _imported(text: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found
