"""A class name, and a word of docs/architecture.md, has one meaning; what both sides write has one name."""

import ast
from collections import defaultdict
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
