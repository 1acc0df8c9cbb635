"""A class name, and a word of docs/architecture.md, has one meaning; what both sides write has one name."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sides import SIDES

ROOT = Path(__file__).parent.parent
PACKAGES = ("tts_core", "torch_ref", "mlx_port", "converters")

# defined more than once → why one meaning needs it
AGAIN = {
    "Opus": "one class a library that writes it; `tts_core.audio.formats` takes the one that is there",
    "Rule": "of a map, and of a device's limits, which `torch_ref.limits` exports",
}


class Definition(NamedTuple):
    """One class. owner: a side, or "shared" for all that is of neither."""

    file: str
    owner: str
    bases: tuple[str, ...]


@cache
def definitions() -> dict[str, list[Definition]]:
    """Those of every class, by its name."""
    found = defaultdict[str, list[Definition]](list)
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        side = file.partition("/")[0]
        owner = side if side in SIDES.values() and not file.startswith("mlx_port/commands/") else "shared"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base) for base in node.bases)
                found[node.name].append(Definition(file, owner, bases))
    return found


def is_network(one: Definition) -> bool:
    """True for a layer, directly or through a base: it has the field's name, and its model owns it."""
    return any(
        base.startswith("nn.")
        or any(is_network(each) for each in definitions().get(base, ()) if each.owner == one.owner)
        for base in one.bases
    )


def is_interface(name: str, shared: Definition, sided: list[Definition]) -> bool:
    """True for a protocol, or a base, that each side's class of its name fulfils."""
    is_protocol = any(base.partition("[")[0] == "Protocol" for base in shared.bases)
    return is_protocol or all(any(base.endswith(f".{name}") for base in one.bases) for one in sided)


def is_one(name: str) -> bool:
    """True for a name of layers only, of one class, or of one a side with its interface."""
    networks = [one for one in definitions()[name] if is_network(one)]
    others = [one for one in definitions()[name] if not is_network(one)]
    shared = [one for one in others if one.owner == "shared"]
    sided = [one for one in others if one.owner != "shared"]
    if (networks and others) or len(shared) > 1 or len({one.owner for one in sided}) < len(sided):
        return False
    return not (shared and sided) or is_interface(name, shared[0], sided)


def test_no_class_name_has_two_meanings():
    found = {name: [one.file for one in definitions()[name]] for name in definitions() if not is_one(name)}
    assert {name: files for name, files in found.items() if name not in AGAIN} == {}


def test_thirty_words_have_one_meaning_each():
    """A comma would make two words of one, a semicolon two meanings."""
    text = (ROOT / "docs/architecture.md").read_text("utf-8").partition("## Words\n")[2]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    words = [word for word, _ in rows]
    assert 0 < len(words) <= 30
    assert len({*words}) == len(words)
    assert not [word for word, meaning in rows if "," in word or ";" in meaning]


@pytest.mark.parametrize("name", AGAIN)
def test_what_is_listed_is_defined_again(name):
    assert not is_one(name)


class Meaning(NamedTuple):
    """One meaning of a word in the code.

    forms: of the word, as parts of names.  names: pattern of the names that have it.  files: pattern of the
    files of the packages that define them.
    """

    forms: tuple[str, ...]
    names: str
    files: str = ".*"


COMMANDS = "mlx_port/commands"
MEANINGS = {
    "a judge writes down the words of a sound": Meaning(
        ("hear", "hears", "heard", "hearing"), r"hear|heard|HeardWord", r"tts_core/judges/words\.py"
    ),
    "no meaning": Meaning(("nothing",), ""),
    "texts that run at once": Meaning(("place", "places", "placed"), r"(check)?_?places"),
    "the number": Meaning(
        ("one", "ones", "each"),
        r"(is_|check_)?one_\w+|_?is_one|_one_\w+|is_one_by_one|(check|of)_each|each_sequence",
    ),
    "a model checks a text with its options and builds its request": Meaning(
        ("ask", "asked", "asks", "asking"), "_?ask"
    ),
    "candidates that a filter of sampling leaves": Meaning(
        ("keep", "keeps", "kept", "keeping"),
        r"_keep|kept|\w+_kept",
        r"(torch_ref|mlx_port)/(sampling|cuda/(filters|sampling))\.py",
    ),
    "a request, or its text, becomes part of a session": Meaning(
        ("join", "joins", "joined", "joining"),
        "_?join",
        r"tts_core/(bulk|serving|speaking)/.*|(torch_ref|mlx_port)/(.*/)?(batch|decoder)\.py",
    ),
    "equal up to rounding, or next to it": Meaning(("near", "nearest"), r"near|near_ties|_?nearest(_\w+)?"),
    "work of the device that the host has not read yet": Meaning(
        ("launch", "launches", "launched", "launching"), r"\w*launch\w*|Launched|EarlyLaunch"
    ),
    "an estimate of memory": Meaning(("plan", "plans", "planned", "planning"), "[Pp]lan"),
    "what a context leaves free for speech": Meaning(
        ("room", "rooms"), "room", r"tts_core/\w+/(footprint|inputs|pieces|request)\.py"
    ),
    "what a speaker says at a time": Meaning(
        ("turn", "turns", "turned"),
        r"\w*turns?|turn_\w+|_turn_\w+|Turn",
        rf"tts_core/(audio|dia|dia2|text)/.*|{COMMANDS}/serve/pieces\.py",
    ),
}
NUMBERS = {("mlx_port/steps/splitting.py", "ones"), ("tts_core/text/numerals.py", "ONES")}
# names that users have
PUBLIC = {("tts_core/prompt.py", "one"), ("mlx_port/commands/verify/ports.py", "turned")}


def identifiers() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of every definition in the packages: modules, classes, functions,
    parameters, variables, and attributes of self.
    """
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        file = str(path.relative_to(ROOT))
        yield file, path.stem
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield file, node.name
            elif isinstance(node, ast.arg):
                yield file, node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield file, node.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield file, node.attr


def misused(meaning: Meaning, names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """List definitions that use a word in another meaning."""
    found = set()
    for file, name in names:
        parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
        if {part.lower() for part in parts} & {*meaning.forms}:
            allowed = re.fullmatch(meaning.names, name) or re.fullmatch(meaning.names, name.lower())
            if not (allowed and re.fullmatch(meaning.files, file)):
                found.add((file, name))
    return sorted(found)


@pytest.mark.parametrize("what", MEANINGS)
def test_a_word_of_the_code_has_one_meaning(what):
    found = misused(MEANINGS[what], identifiers())
    assert {*found} - NUMBERS - PUBLIC == set()


def test_loops_run_over_things_with_a_noun():
    """`one` and `ones` name no variables, except where the number is meant, and `each` none at all."""
    found = {use for use in identifiers() if use[1].lower() in ("one", "ones", "each")}
    assert found - NUMBERS - PUBLIC == set()
