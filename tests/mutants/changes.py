"""Small changes of the packages' source: mutmut's operators, each applied to one node of one file."""

import ast
import difflib
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import libcst as cst  # pyright: ignore[reportMissingImports]
from libcst.metadata import MetadataWrapper, PositionProvider  # pyright: ignore[reportMissingImports]
from mutmut.mutation.mutators import mutation_operators  # pyright: ignore[reportMissingImports]

from tests.mutants.selection import PACKAGES, runs_on_a_cpu

CAUGHT = ("killed", "timed out")


class Place(NamedTuple):
    """A node that an operator can change, and its lines."""

    node: cst.CSTNode
    first: int
    last: int


@dataclass
class Mutant:
    """One changed file.  outcome: unclear if the tests fail without the change too."""

    path: str
    line: int
    operator: str
    diff: list[str]
    source: str = field(repr=False)
    last: int = 0
    outcome: str = "not run"
    by: str = ""  # the test that failed
    error: str = ""
    seconds: float = 0.0
    covering: int = 0  # tests that ran the line
    tests: list[str] = field(default_factory=list)  # those chosen

    @property
    def change(self) -> list[str]:
        """Only the changed lines, which stay the same when other lines of the file move."""
        return [line for line in self.diff[2:] if line.startswith(("-", "+"))]


class Places(cst.CSTVisitor):
    """Collect each node that an operator can change."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Place] = []
        self.first = self.last = 1  # of the last node with a position; operators have no position

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_left_out(node):
            return False
        if position := self.get_metadata(PositionProvider, node, None):
            self.first, self.last = position.start.line, position.end.line
        if any(True for _ in _changes(node)):
            self.found.append(Place(node, self.first, self.last))
        return True


def _changes(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode]]:
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            for changed in operator(node):
                yield operator.__name__.removeprefix("operator_"), changed


def _is_left_out(node: cst.CSTNode) -> bool:
    """Check for annotations, docstrings, and texts for people (three words or more)."""
    match node:
        case cst.Annotation() | cst.Raise() | cst.Expr(value=cst.BaseString()):
            return True
        case cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.BaseString():
            return len(cst.Module([]).code_for_node(node).split()) >= 3
    return False


def sample(root: Path, *, seed: int, count: int) -> list[Mutant]:
    """Draw nodes with equal chances, and one change of each."""
    chance = random.Random(seed)
    places = [(file, place) for file in _files(root) for place in file.places]
    print(f"{len(places)} places to change", flush=True)
    chance.shuffle(places)
    drawn: list[Mutant] = []
    for file, place in places:
        if len(drawn) == count:
            break
        if mutants := list(_mutants(file, place)):
            drawn.append(chance.choice(mutants))
    return drawn


def places(root: Path) -> Counter[str]:
    """Number of nodes that an operator can change, by file."""
    return Counter({file.path: len(file.places) for file in _files(root)})


def again(root: Path, results: Path) -> list[Mutant]:
    """Recreate the mutants of an earlier run that were not caught, by their changed lines."""
    missed = [each for each in json.loads(results.read_text())["mutants"] if each["outcome"] not in CAUGHT]
    changed = {(each["path"], line[1:]) for each in missed for line in each["change"] if line[0] == "-"}
    made = []
    for file in _files(root):
        lines = file.module.code.splitlines()
        for place in file.places:
            if any((file.path, line) in changed for line in lines[place.first - 1 : place.last]):
                made += _mutants(file, place)
    found = []
    for each in missed:
        same = [new for new in made if (new.path, new.change) == (each["path"], each["change"])]
        if same:
            found.append(min(same, key=lambda new: abs(new.line - each["line"])))
        else:
            print(f"no longer there: {each['path']}:{each['line']}", flush=True)
    return found


class _File(NamedTuple):
    path: str
    module: cst.Module
    places: list[Place]


def _files(root: Path) -> Iterator[_File]:
    for path, text in sources(root).items():
        if not path.startswith("tests/") and runs_on_a_cpu(path):
            wrapper = MetadataWrapper(cst.parse_module(text))
            places = Places()
            wrapper.visit(places)
            yield _File(path, wrapper.module, places.found)


def _mutants(file: _File, place: Place) -> Iterator[Mutant]:
    old = file.module.code
    for operator, changed in _changes(place.node):
        new = cst.ensure_type(file.module.deep_replace(place.node, changed), cst.Module).code
        try:
            compile(new, file.path, "exec")
        except SyntaxError:
            continue
        if ast.dump(ast.parse(new)) == ast.dump(ast.parse(old)):
            continue
        diff = difflib.unified_diff(
            old.splitlines(), new.splitlines(), file.path, file.path, lineterm="", n=1
        )
        yield Mutant(file.path, place.first, operator, list(diff), new, place.last)


@cache
def sources(root: Path) -> dict[str, str]:
    """Read all Python files of the packages and the tests, by path."""
    files = sorted(each for top in (*PACKAGES, "tests") for each in (root / top).rglob("*.py"))
    return {each.relative_to(root).as_posix(): each.read_text() for each in files}
